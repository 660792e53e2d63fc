package signature

// A Lane is the part of a node that a record speaks of.
type Lane string

// The lanes.
const (
	Kubelet Lane = "kubelet"
	Runtime Lane = "runtime"
	Kernel  Lane = "kernel"
	Node    Lane = "node"
)

// A Marker says how a timeline shows a record. The empty Marker is not shown by itself.
type Marker string

// The markers.
const (
	Start    Marker = "start"
	Stop     Marker = "stop"
	Restart  Marker = "restart"
	Error    Marker = "error"
	Warning  Marker = "warning"
	Recovery Marker = "recovery"
)

// A Signature is one meaning of log records, with its documentation.
type Signature struct {
	Code     string
	Lane     Lane
	Marker   Marker
	Title    string   // a few words for a table
	Means    string   // what it tells a person, in a sentence or two
	Versions string   // which versions print it, and how the wording changed
	Implies  []string // cause codes of kdiag explain that it is evidence for; empty if it names none by itself
	Literals []string // texts of which a record bears at least one; further conditions may apply
	Sources  []string // files of the programs that print it
}

// An entry is a signature with the rules by which records bear it.
type entry struct {
	Signature
	forms []form
	reads reading
}

// A form is one wording. A record bears it if it contains has and meets all other conditions.
type form struct {
	has  string
	and  []string // all of these too
	or   []string // at least one of these too, if there are any
	not  []string // none of these
	rpcs []string // the CRI call that the record names is one of these, if there are any
	lead []string // one of these begins the message that has stands in, if there are any: systemd's verbs
	role bool     // the systemd unit that the record names is a kubelet or a runtime
}

// A reading says what is to be read out of a record that bears a signature.
type reading uint16

const (
	readUnhealthy reading = 1 << iota // age, threshold, reasons, whether it is a node condition
	readCall                          // RPC, gRPC code, error text
	readObject                        // container, sandbox, pod
	readTask                          // kernel task: name, pid, seconds
	readVictim                        // OOM victim: name, pid, constraint
	readServer                        // network file server
	readDevice                        // block device, network device, file system
	readPath                          // file or cgroup
	readUnit                          // systemd unit, its role and counters
	readSizes                         // sizes of a message that is too large
	readTook                          // how long something took
	readOwner                         // whose certificate it is
)

// all tells how plain literals match: each by itself.
func all(literals ...string) []form {
	forms := make([]form, len(literals))
	for i, l := range literals {
		forms[i].has = l
	}
	return forms
}

// unless adds texts that rule out the forms.
func unless(not []string, forms []form) []form {
	for i := range forms {
		forms[i].not = append(forms[i].not[:len(forms[i].not):len(forms[i].not)], not...)
	}
	return forms
}
