package fake

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Scenario describes a runtime: its contents, its latencies, and its faults over time. The same YAML or JSON
// serves --simulate, kdiag runtime serve, scripts and tests.
type Scenario struct {
	Name    string `json:"name,omitempty"`
	Summary string `json:"summary,omitempty"` // one line for --simulate help
	Cause   string `json:"cause,omitempty"`   // the cause code that kdiag pleg must name; empty for healthy

	// Extends names a built-in scenario to start from. Its pods and images come before those given here, its
	// latencies and faults after them; the runtime, the conditions, the limits and the socket are taken over where
	// they are not given here. Parse resolves it and clears it.
	Extends string `json:"extends,omitempty"`

	Runtime    RuntimeInfo   `json:"runtime,omitempty"`
	Conditions []Condition   `json:"conditions,omitempty"` // default RuntimeReady and NetworkReady, both true
	Limits     MessageLimits `json:"limits,omitempty"`
	Streaming  bool          `json:"streaming,omitempty"` // serve StreamContainers and StreamPodSandboxes
	Socket     SocketMode    `json:"socket,omitempty"`    // behaviour of the socket before any RPC; default listen
	Latency    []Latency     `json:"latency,omitempty"`   // first match wins; no match answers at once
	Faults     []Fault       `json:"faults,omitempty"`    // first match in force wins
	Exits      []Exit        `json:"exits,omitempty"`     // first match wins; no match runs until it is stopped
	Pods       []PodGroup    `json:"pods,omitempty"`
	Images     []string      `json:"images,omitempty"` // besides the images of the pods
}

// An Exit ends matching containers by themselves, such as init containers. Only those that a client starts end.
type Exit struct {
	Object Object   `json:"object,omitempty"` // of the container; empty matches all
	After  Duration `json:"after,omitempty"`  // from its start
	Code   int      `json:"code,omitempty"`
}

// RuntimeInfo holds the answers of Version and RuntimeConfig.
type RuntimeInfo struct {
	Name         string `json:"name,omitempty"`         // default "containerd"
	Version      string `json:"version,omitempty"`      // default "v2.1.4"
	CgroupDriver string `json:"cgroupDriver,omitempty"` // systemd (default) or cgroupfs
}

// A Condition is one entry of Status.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// MessageLimits are the server's gRPC limits in bytes; 0 means 16 MiB, as containerd's default.
type MessageLimits struct {
	Send    int `json:"send,omitempty"`
	Receive int `json:"receive,omitempty"`
}

// A SocketMode is the behaviour of the socket before any RPC.
type SocketMode string

// The socket modes.
const (
	SocketListen SocketMode = ""       // serves
	SocketRefuse SocketMode = "refuse" // a stale socket file on which nothing listens
)

// A Duration is a time.Duration that reads and writes as "250ms" in YAML and JSON.
type Duration time.Duration

// String returns the duration as Go writes it, such as "250ms".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as a string such as "250ms".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string such as "250ms" or "1h30m". A number is an error, because it has no unit.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		text = string(data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 250ms or 1h30m", text)
	}
	*d = Duration(parsed)
	return nil
}

// A Latency is how long matching RPCs take before they answer.
type Latency struct {
	RPC     string   `json:"rpc"`               // name or path.Match pattern: ContainerStatus, List*, *
	Base    Duration `json:"base,omitempty"`    // for each call
	PerItem Duration `json:"perItem,omitempty"` // added for each item of a list answer
	Jitter  Duration `json:"jitter,omitempty"`  // up to this much more, at random
}

// A Fault is something that goes wrong with matching RPCs while it is in force.
type Fault struct {
	RPC    string `json:"rpc"`             // name or path.Match pattern
	Object Object `json:"object,omitzero"` // of the call; empty matches every call

	Hang bool `json:"hang,omitempty"` // never answers; gives up only when the caller does
	// with Hang: a hung call goes on once its time window ends, as after SIGCONT
	Thaw  bool     `json:"thaw,omitempty"`
	Delay Duration `json:"delay,omitempty"` // answers this much later
	// gRPC code name and message, as "Unavailable: server is not initialized yet"
	Error string `json:"error,omitempty"`

	// Drop cuts the caller's connection in place of the answer, as when the daemon dies: the call has been handled.
	Drop bool `json:"drop,omitempty"`
	// Oversize pads each answer with an unknown field to at least so many bytes, so that it exceeds the caller's
	// limit, unless it exceeds the server's own first.
	Oversize int `json:"oversize,omitempty"`

	From  Duration `json:"from,omitempty"`  // since the server's start
	Until Duration `json:"until,omitempty"` // since the server's start; 0 means for good
	Every Duration `json:"every,omitempty"` // with For: in force for the first For of every Every, counted from From
	For   Duration `json:"for,omitempty"`
	First int      `json:"first,omitempty"` // only so many matching calls, after those that After skips; 0 means all
	After int      `json:"after,omitempty"` // not the first so many matching calls
}

// An Object selects calls by the sandbox or container they are about. All fields that are set must match, as
// path.Match patterns.
type Object struct {
	ID        string `json:"id,omitempty"` // sandbox or container id
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"` // matches containers only
	Sandbox   bool   `json:"sandbox,omitempty"`   // matches sandboxes only
}

// A PodGroup makes Count pods of one shape, named Name-0, Name-1, ... (just Name when Count is 0 or 1).
type PodGroup struct {
	Namespace   string            `json:"namespace,omitempty"` // default "default"
	Name        string            `json:"name"`
	Count       int               `json:"count,omitempty"` // default 1
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// bytes of one more annotation on each sandbox and container
	Padding    int  `json:"padding,omitempty"`
	NotReady   bool `json:"notReady,omitempty"`   // the sandbox is stopped and its containers have exited
	DeadBefore int  `json:"deadBefore,omitempty"` // older, stopped sandboxes of the same pod
	// the sandbox has the host's network namespace and no address
	HostNetwork bool             `json:"hostNetwork,omitempty"`
	Age         Duration         `json:"age,omitempty"` // of the sandbox; default 24h
	Containers  []ContainerGroup `json:"containers,omitempty"`
}

// A ContainerGroup is one container of each pod of a group, with the dead instances before it.
type ContainerGroup struct {
	Name     string   `json:"name"`
	Image    string   `json:"image,omitempty"`  // default "docker.io/library/app:1"
	State    string   `json:"state,omitempty"`  // running (default), created, exited, unknown
	Exited   int      `json:"exited,omitempty"` // earlier, exited instances of the same name
	ExitCode int      `json:"exitCode,omitempty"`
	Reason   string   `json:"reason,omitempty"` // of the exited ones; default Completed or Error by exit code
	Every    Duration `json:"every,omitempty"`  // between the creations of the exited instances; default 1m
}
