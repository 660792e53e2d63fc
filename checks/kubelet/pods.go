package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A Pod is a pod of this node as the kubelet or the API server has it.
type Pod struct {
	crictl.Pod            // the UID is that by which the runtime knows it
	Phase      string     // Pending, Running, Succeeded, Failed or Unknown
	Started    *time.Time `json:",omitempty"` // when the kubelet took it over; nil until then
	Known      *time.Time `json:",omitempty"` // since when the kubelet knows it; nil where the API server was asked
	Deleted    *time.Time `json:",omitempty"` // when its grace period ends; nil where it is not to go
	// Hooked is a container with a postStart hook that the kubelet still has as ContainerCreating; empty for none.
	Hooked string `json:",omitempty"`
	// Rejected is why the kubelet rejected it for good: the reason and its words; empty where it did not.
	Rejected string `json:",omitempty"`
	// Unready is since when its condition Ready is False; nil while it is ready, and once it has ended.
	Unready *time.Time `json:",omitempty"`
	// Restarted is when a container of it ended last that was started again, or is to be; nil for none.
	Restarted *time.Time `json:",omitempty"`
	// State is the first container that is not ready, else the one that was restarted last, with how it ended last:
	// "c: CrashLoopBackOff after exit code 1 (Error)". Restarts counts that container's.
	State    string `json:",omitempty"`
	Restarts int    `json:",omitempty"`
	// Message is what the kubelet says of that container's waiting, other than for its next start; empty for nothing.
	Message string `json:",omitempty"`
	// Unreachable is why nothing on the node reaches an address of it, as a clause; empty where that is not known.
	Unreachable string `json:",omitempty"`
}

// A containerStatus holds the fields that kdiag uses of a ContainerStatus.
type containerStatus struct {
	Name         string
	Ready        bool
	RestartCount int
	State        struct {
		Waiting    struct{ Reason, Message string }
		Terminated struct{ Reason string }
	}
	LastState struct {
		Terminated *struct {
			Reason     string
			ExitCode   int
			FinishedAt time.Time
		}
	}
}

// words writes in which state a container is, and how it ended before.
func (c *containerStatus) words() string {
	line := c.Name + ": " + cmp.Or(c.State.Waiting.Reason, c.State.Terminated.Reason, "running")
	if !c.Ready && c.State.Waiting.Reason == "" && c.State.Terminated.Reason == "" {
		line += ", not ready"
	}
	if t := c.LastState.Terminated; t != nil {
		line += fmt.Sprintf(" after exit code %d (%s)", t.ExitCode, t.Reason)
	}
	return oneLine(line)
}

// Annotations of pods: the UID of a static pod of which the API server has a mirror with another UID; and, in the
// kubelet's own list, when it first had the pod from its source (recordFirstSeenTime in pkg/kubelet/config).
const (
	annotationHash = "kubernetes.io/config.hash"
	annotationSeen = "kubernetes.io/config.seen"
)

// AskPods asks for the pods of this node: the kubelet at its read-only port, or with given credentials at its server,
// else, where that may be asked, the API server of its kubeconfig as this node.
func AskPods(ctx context.Context, root string, s Settings, given Credentials, apiServer bool) ([]Pod, error) {
	var c serverClient
	var err error
	path := "/pods"
	switch {
	case s.ReadOnlyAddress != "":
		var host string
		if host, err = onNode(s.ReadOnlyAddress); err == nil {
			c = newClient("http://"+host, nil)
		}
	case given != Credentials{}:
		c, err = openServer(ctx, root, s, given)
	case apiServer:
		var unknown error
		c, unknown, err = newAPIClient(root, s)
		err = errors.Join(err, unknown)
		path = "/api/v1/pods?" + url.Values{"fieldSelector": {"spec.nodeName=" + s.NodeName}}.Encode()
	default:
		err = errors.New("the kubelet has no read-only port, and the API server is not asked")
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the pods: %w", err)
	}
	defer c.client.CloseIdleConnections()
	c.most = maxPods
	r, err := c.getOK(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", c.base, reasonUnanswered(err))
	}
	return parsePods(r.body, unreachable(root))
}

// unreachable returns why nothing on the node reaches an IPv4 address, by address, as far as the kernel says: it lists
// each address of the node's own below the table of local routes as "|-- ADDRESS" and, in the next line, "/32 host
// LOCAL", and a neighbour that did not answer with the flags 0x0 (proc_net_arp(5)). One that answers on another
// interface is reached: the entry is left from another route.
func unreachable(root string) map[string]string {
	own, _ := os.ReadFile(filepath.Join(root, "proc/1/net/fib_trie"))
	neighbours, _ := os.ReadFile(filepath.Join(root, "proc/1/net/arp"))
	why, answers, last := map[string]string{}, map[string]bool{}, ""
	for line := range strings.Lines(string(neighbours)) {
		f := strings.Fields(line)
		switch {
		case len(f) != 6:
		case f[2] != "0x0":
			answers[f[0]] = true
		default:
			why[f[0]] = oneLine("nobody on " + f[5] + " answers for its address " + f[0] + " (ARP)")
		}
	}
	maps.DeleteFunc(why, func(address, _ string) bool { return answers[address] })
	for line := range strings.Lines(string(own)) {
		line = strings.TrimSpace(line)
		if address, found := strings.CutPrefix(line, "|-- "); found {
			last = address
		} else if line == "/32 host LOCAL" {
			why[last] = oneLine("its address " + last + " is also one of the node's own")
		}
	}
	return why
}

// readContainers sets what Pod has of its containers.
func (p *Pod) readContainers(all []containerStatus) {
	unready := false
	for i := range all {
		c := &all[i]
		newest := c.LastState.Terminated != nil &&
			(p.Restarted == nil || c.LastState.Terminated.FinishedAt.After(*p.Restarted))
		if newest {
			p.Restarted = &c.LastState.Terminated.FinishedAt
		}
		if !unready && (newest || !c.Ready) {
			unready = !c.Ready
			p.State, p.Restarts, p.Message = c.words(), c.RestartCount, ""
			if w := c.State.Waiting; w.Reason != "CrashLoopBackOff" {
				p.Message = oneLine(w.Message)
			}
		}
	}
}

// parsePods reads a PodList, of which nothing but names, phases, times and the states of containers is kept.
// Unreachable has why addresses cannot be reached.
func parsePods(data []byte, unreachable map[string]string) ([]Pod, error) {
	var list struct {
		Kind  string
		Items []struct {
			Metadata struct {
				UID, Namespace, Name string
				Annotations          map[string]string
				DeletionTimestamp    *time.Time
			}
			Spec struct {
				HostNetwork bool
				Containers  []struct {
					Name      string
					Lifecycle struct{ PostStart *struct{} }
				}
			}
			Status struct {
				Phase, Reason     string
				Message           string
				PodIPs            []struct{ IP string }
				StartTime         *time.Time
				ContainerStatuses []containerStatus
				Conditions        []struct {
					Type, Status       string
					LastTransitionTime time.Time
				}
			}
		}
	}
	if err := json.Unmarshal(data, &list); err != nil || list.Kind != "PodList" {
		return nil, errors.New("the answer is no list of pods")
	}
	pods := make([]Pod, 0, len(list.Items))
	for i := range list.Items {
		m, status := &list.Items[i].Metadata, &list.Items[i].Status
		p := Pod{
			Pod:   crictl.Pod{Namespace: m.Namespace, Name: m.Name, UID: cmp.Or(m.Annotations[annotationHash], m.UID)},
			Phase: status.Phase, Started: status.StartTime, Deleted: m.DeletionTimestamp,
		}
		if t, err := time.Parse(time.RFC3339Nano, m.Annotations[annotationSeen]); err == nil {
			p.Known = &t
		}
		// rejectPod in pkg/kubelet/kubelet.go; up to 1.28 the message begins with "Pod " alone.
		if words, found := strings.CutPrefix(status.Message, "Pod was rejected: "); found && status.Phase == "Failed" {
			p.Rejected = oneLine(status.Reason + ": " + words)
		}
		for _, c := range list.Items[i].Spec.Containers {
			for _, s := range status.ContainerStatuses {
				if c.Lifecycle.PostStart != nil && s.Name == c.Name && s.State.Waiting.Reason == "ContainerCreating" {
					p.Hooked = cmp.Or(p.Hooked, oneLine(c.Name))
				}
			}
		}
		if p.Phase == "Running" || p.Phase == "Pending" {
			for _, c := range status.Conditions {
				if c.Type == "Ready" && c.Status == "False" {
					p.Unready = &c.LastTransitionTime
				}
			}
			p.readContainers(status.ContainerStatuses)
		}
		for _, ip := range status.PodIPs {
			if !list.Items[i].Spec.HostNetwork {
				p.Unreachable = cmp.Or(p.Unreachable, unreachable[ip.IP])
			}
		}
		pods = append(pods, p)
	}
	return pods, nil
}
