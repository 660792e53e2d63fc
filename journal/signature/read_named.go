package signature

import (
	"regexp"
	"strings"
	"sync"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// named returns a function that reads facts by the first of some expressions that matches a record. The names of the
// groups are the names of the facts.
func named(expressions ...string) func(r *record, m *Match) {
	forms := sync.OnceValue(func() (forms []*regexp.Regexp) {
		for _, e := range expressions {
			forms = append(forms, regexp.MustCompile(e))
		}
		return forms
	})
	return func(r *record, m *Match) {
		for _, form := range forms() {
			groups := form.FindStringSubmatch(r.text)
			for i := 1; i < len(groups); i++ {
				m.set(form.SubexpNames()[i], groups[i])
			}
			if groups != nil {
				return
			}
		}
	}
}

// set takes one fact.
func (m *Match) set(name, value string) {
	if value == "" {
		return
	}
	switch name {
	case "pid":
		m.PID = int(leadingInt(value))
	case "seconds":
		m.Seconds = float64(leadingInt(value))
	case "took":
		if d, ok := duration(value); ok {
			m.Seconds = d.Seconds()
		}
	case "constraint":
		m.Constraint = "global"
		if strings.Contains(strings.ToLower(value), "cg") {
			m.Constraint = "memcg"
		}
	case "size":
		m.Size = leadingInt(value)
	case "limit":
		m.Limit = leadingInt(value)
	case "sending":
		m.Sending = true
	default:
		*map[string]*string{
			"process": &m.Process, "path": &m.Path, "limiter": &m.Limiter, "device": &m.Device,
			"container": &m.Container, "containerID": &m.ContainerID, "sandboxID": &m.SandboxID, "pod": &m.Pod,
			"namespace": &m.Namespace, "uid": &m.PodUID,
		}[name] = keep(value)
	}
}

// The readers of one or two facts.
var (
	// A task's name may contain colons and blanks; the last colon before "blocked" ends it.
	readTask = named(
		`etected process \((?P<pid>\d+)\) blocked .*?more than (?P<seconds>\d+)`,
		`task (?P<process>.+):(?P<pid>\d+) blocked (?:.*?more than (?P<seconds>\d+))?`,
		`stuck for (?P<seconds>\d+)s?!?(?:.*\[(?P<process>.+):(?P<pid>\d+)\])?`)
	// The name of a victim may contain parentheses and commas: "(sd-pam)) total-vm".
	readVictim = named(
		`(?P<constraint>(?:cgroup o|O|o)ut of memory)`+
			`(?:.*? process (?P<pid>\d+) \((?P<process>.+?)\)?(?:\) score|\) total-vm|\), |,|$))?`,
		`oom-kill:constraint=(?P<constraint>\w+)(?:.*?oom_memcg=(?P<limiter>[^, \n]+))?`+
			`(?:.*task_memcg=(?P<path>[^, \n]+))?`+
			`(?:.*,task=(?P<process>.+),pid=(?P<pid>\d+))?`,
		`(?:.*[:\]] )?(?P<process>.+) invoked oom-killer`,
	)
	readServer = named(`server (?P<path>[^ ,\n]+)`, `\\\\(?P<path>\S+) has not responded`)
	readDevice = named(`nvme (?P<device>nvme[^ ,):;\n]+)`,
		`(?:, dev |on dev |on device |\(device |waiting for |XFS \(|EXT4-fs \(|failure on )(?P<device>[^ ,):;\n]+)`,
		`\[(?P<device>sd[a-z]+)\]`)
	readHardware = named(`(?:Sending SIGBUS to|MCE: Killing) (?P<process>.+):(?P<pid>\d+) due to`,
		`\d [CU]E .*?\bon (?P<device>\S+)`, `(?P<device>CPU \d+): Machine`, `NVRM: Xid \((?P<device>[^)]+)\)`,
		`NETDEV WATCHDOG: (?P<device>[^ :]+) \(`, `slave (?P<device>[^) ]+)\)`,
		`(?P<device>[\w.@-]+):? (?:NETDEV WATCHDOG: CPU|NIC Link is|Link is|Detected Hardware Unit|Keep alive watchdog)`)
	readCrash = named(`Process (?P<pid>\d+) \((?P<process>[^)]+)\)`,
		`(?:traps: |^|\] |: )(?P<process>[^\[\]:]{1,15})\[(?P<pid>\d+)\]:? (?:segfault|trap|general|unhandled)`)
	readSizes = named(`(?P<sending>trying to send message )?larger than max \(?(?P<size>\d+)(?: vs\. (?P<limit>\d+))?`)
	readTook  = named(`actual="?(?P<took>[0-9.hmsuµn]+)`, `seconds="?(?P<took>[0-9.]+)`,
		`(?:dirs took|longer than) (?P<took>[0-9.hmsuµn]+)`)
	// Runtimes make names of a pod's: container_pod_namespace_uid_attempt, pod_namespace_uid_attempt, both with or
	// without k8s_ in front.
	readReserved = named(
		`(?:container|ctr) name \\*"?(?:k8s_)?(?P<container>[^_"\\ ]+)_`+podName+
			`(?:.*?(?P<containerID>[0-9a-f]{64}))?`,
		`(?:sandbox|pod) name \\*"?(?:k8s_)?`+podName+`(?:.*?(?P<sandboxID>[0-9a-f]{64}))?`,
	)
	// &PodSandboxMetadata{Name:a,Uid:b,Namespace:c,Attempt:0,}, also in the text form of protobuf.
	readSandboxMetadata   = named(`PodSandboxMetadata`+metadata, `RunPodSandbox for n`+metadata)
	readContainerMetadata = named(`ContainerMetadata[^}]*?ame:[\\"]*(?P<container>[^,\\" }]+)`)
	// "PLEG: Ignoring events for pod name/namespace: ..." of kubelets up to 1.20: the name comes first there.
	readIgnored = named(`PLEG: .*?pod (?P<pod>[^ :"\n/]+)/(?P<namespace>[^ :"\n]*)`)
	// MountVolume.SetUp failed for volume "v" (UniqueName: "p/v") pod "NAME" (UID: "u"), in which a pod that is gone has
	// its UID for a name.
	readVolumePod = named(`pod \\*"[^"\\ ]+\\*" \(UID: \\*"(?P<uid>[^"\\ ]+)\\*"\)`)
	readSyncing   = named(`rror syncing pod (?P<uid>[^ ,"-]+(?:-[^ ,"-]+){4})`)
)

const metadata = `[^}]*?ame:[\\"]*(?P<pod>[^,\\" }]+)(?:[^}]*?id:[\\"]*(?P<uid>[^,\\" }]+))?` +
	`(?:[^}]*?amespace:[\\"]*(?P<namespace>[^,\\" }]+))?`

const podName = `(?P<pod>[^_"\\ ]+)_(?P<namespace>[^_"\\ ]+)_(?P<uid>[^_"\\ ]+)_\d+`

// pathWord matches a path in a message about a file or a cgroup.
var pathWord = lazyregexp.New(`(?:^|[ ="'(:])(/[\w/.@+~%#-]+)`)

// readPath reads the last path.
func readPath(r *record, m *Match) {
	s := r.text
	if all := pathWord.FindAllStringSubmatch(s[max(0, len(s)-4096):], -1); len(all) > 0 {
		m.Path = keep(all[len(all)-1][1])
	}
}

// readDriver reads the driver that is not registered with the kubelet. Where no pod is named, that is the object: ids
// in such a record are of volumes.
func readDriver(r *record, m *Match) {
	for _, mark := range []string{"DRA driver ", "driver name ", "plugin name "} {
		i := strings.Index(r.text, mark)
		if i < 0 {
			continue
		}
		m.ErrorText = errorText(upTo(r.text[i:], "\"\\"))
		if m.Pod == "" {
			m.ContainerID, m.SandboxID, m.Device = "", "", keep(upTo(r.text[i+len(mark):], " "))
		}
		return
	}
}
