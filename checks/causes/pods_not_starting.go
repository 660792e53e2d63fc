package causes

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// PodsNotStarting is the code of this cause.
const PodsNotStarting = "PodsNotStarting"

func recognisePodsNotStarting(f *facts.Facts) *Finding {
	pods, none := f.Pods.NotStarting, f.Pods.NoneStarts
	wrong := podsLabel(pods) + units.Plural(len(pods), " does", " do") + " not start"
	every := func(stage facts.Stage) bool {
		return len(pods) > 0 && !slices.ContainsFunc(pods, func(t facts.PodTrouble) bool { return t.Stage != stage })
	}
	switch {
	case every(facts.Unreachable):
		lacksPort := func(t facts.PodTrouble) bool { return strings.Contains(t.Words, noLocalPort) }
		wrong = ifElse(slices.ContainsFunc(pods, lacksPort), "the node has no free local port: ", "") +
			"the kubelet cannot reach " + podsLabel(pods)
	case every(facts.Fails):
		wrong = textf("%d of %d workloads fail at once, by the node's fault unless they share a dependency: %s",
			f.Pods.Failing, f.Pods.Workloads, podsLabel(pods))
	case every(facts.NotExecuted):
		wrong = "the kernel cannot execute the program of " + podsLabel(pods)
	case every(facts.NoManifest):
		wrong = "the kubelet has stopped " + podsLabel(pods)
	case every(facts.Rejected):
		wrong = "the kubelet rejects " + podsLabel(pods)
	case len(pods) == 1 && pods[0].Stage == facts.InHook:
		wrong = "the postStart hook of " + podsLabel(pods) + " has not returned"
	case none && facts.OfNetwork(pods[0].Words):
		wrong = "no pod with its own network can start"
	case none:
		wrong = "no pod can start"
	case noExec(f, pods) != "":
		wrong += ", and " + facts.Clean(noExec(f, pods)) + " is mounted noexec"
	}
	x := withFIFO(f, troubled(f, pods, none, wrong), wrong)
	if ping := f.Seen.Health.Value.Ping; ping != nil && strings.Contains(ping.Err, noLocalPort) {
		x = withoutPort(x, textf("%s: %s", facts.Clean(ping.URL), facts.Clean(ping.Err)))
	}
	if n := f.Seen.CNI.Value; n.MountsStay && !f.Target.OtherEndpoint {
		x = withMountsThatStay(f, x)
	}
	refused := len(pods) > 0 && facts.Says(pods[0].Words, "permission denied")
	if d := f.Target.Daemon.Process; d != nil && d.Umask&othersRead != 0 && (x == nil || refused) {
		x = withUmask(f, *d, x)
	}
	if x == nil {
		x = withoutSource(f)
	}
	failed := canaryFails(f, "RunPodSandbox", "CreateContainer", "StartContainer")
	if failed == nil {
		return x
	}
	line := textf("a canary fails: %s: %s", failed.Name, facts.Clean(failed.Error))
	if x == nil {
		x = newFinding(checks.Critical, checks.Certain, besides(f, "no pod can start: ")[0]+line, checks.Evidence{},
			*cmp.Or(facts.DaemonSubject(f), facts.SocketSubject(f)))
		return x.advise(func(s *Steps, _ string) { AddService(f, s); addCapture(f, s) })
	}
	x.Severity, x.Step = checks.Critical, checks.Certain
	x.Evidence.For = append(x.Evidence.For, line)
	return x
}

// noLocalPort is what connect(2) says (EADDRNOTAVAIL) where all ports of ip_local_port_range are in use.
const noLocalPort = "connect: cannot assign requested address"

// withoutPort adds to a finding, or makes one of it, that kdiag itself got no local port to ask the kubelet from.
func withoutPort(x *Finding, line string) *Finding {
	if x == nil {
		x = newFinding(checks.Warning, checks.Certain,
			"the node has no free local port: nothing on it opens a TCP connection",
			checks.Evidence{}, checks.Subject{Kind: "Node"}).advise(func(s *Steps, _ string) {
			s.Look(portCommand, portWhy)
		})
	}
	x.Evidence.For = append(x.Evidence.For, line)
	return x
}

// withMountsThatStay returns the finding that volumes do not reach the runtime, with the evidence of another one.
func withMountsThatStay(f *facts.Facts, other *Finding) *Finding {
	var e checks.Evidence
	Addf(&e.For, "its mount namespace is another than the runtime's, and passes no mount of %s on to it",
		facts.Clean(cmp.Or(f.Seen.Settings.Value.RootDir, "its folder")))
	if other != nil {
		e.For = append(e.For, other.Evidence.For...)
	}
	const wrong = "the volumes that the kubelet mounts are empty in containers: it is in a mount namespace of its own"
	x := newFinding(checks.Warning, checks.Strong, besides(f, wrong)[0], e, *facts.KubeletSubject(f))
	return x.advise(func(s *Steps, _ string) {
		s.lookIf(facts.Safe(f.Target.KubeletUnit), "systemctl cat "+f.Target.KubeletUnit+
			" | grep -nE 'Private|Protect|Mount|Read|Bind|Inaccessible|TemporaryFileSystem'",
			"Find the setting that gives it mounts of its own, remove it, restart it, and delete the pods with volumes")
		s.Look("lsns -t mnt", "See the mount namespaces, and the first process in each")
	})
}

// othersRead are the bits of a umask that keep other users than the owner from a folder.
const othersRead = 0o005

// withUmask returns the finding that the runtime makes folders that only root can enter, such as the root of a
// container's file system, with the evidence of another one. dockerd sets its umask itself; containerd does not.
func withUmask(f *facts.Facts, d host.Process, other *Finding) *Finding {
	var e checks.Evidence
	severity := checks.Warning
	Addf(&e.For, "the umask of %v is %04o; 0022 is usual", d, d.Umask)
	if other != nil {
		severity, e.For = other.Severity, append(e.For, other.Evidence.For...)
	}
	wrong := textf("%v makes folders that only root can enter (umask %04o): new containers of other users fail",
		d, d.Umask)
	x := newFinding(severity, checks.Strong, wrong, e, *facts.DaemonSubject(f))
	return x.advise(func(s *Steps, _ string) {
		unit := f.Target.Daemon.Unit
		s.lookIf(unit != "", textf("systemctl show -p UMask %s; systemctl cat %[1]s | grep -n UMask", unit),
			"Find who sets it; then delete the pods that were made with it")
		addRestart(f, s)
	})
}

// withoutSource returns the finding that the kubelet gets no pods, or not those that are there for it, as after a
// change of its settings and a restart; nil where that is not so.
func withoutSource(f *facts.Facts) *Finding {
	s, pods := f.Seen.Settings, f.Seen.Pods
	folder, wrong := s.Value.NoManifests, ""
	switch {
	case !s.OK: // a file that was not read may name another folder
		return nil
	case s.Value.Unread && folder == "":
		folder = kubelet.UsualManifests
		wrong = textf("the static pods in %s are not read: the kubelet's staticPodPath is %s, and has none", folder,
			facts.Clean(cmp.Or(s.Value.StaticPodPath, "another folder")))
	case s.Value.Unread:
		wrong = textf("the static pods in %s are not read: the kubelet's staticPodPath is %s, which is not there",
			kubelet.UsualManifests, facts.Clean(folder))
	case folder != "" && s.Value.Kubeconfig == "" && pods.OK && len(pods.Value) == 0:
		wrong = textf("the kubelet has no pods: its folder of static pods %s is not there, and it has no API server",
			facts.Clean(folder))
	default:
		return nil
	}
	x := newFinding(checks.Warning, checks.Strong, wrong, checks.Evidence{}, *facts.KubeletSubject(f))
	return x.advise(func(s *Steps, _ string) {
		s.lookIf(facts.SafePath.MatchString(folder), "ls -ld "+folder+"*", "Find the folder: it may have another name")
		s.Look("grep -rn staticPodPath /var/lib/kubelet/config.yaml /etc/kubernetes", "Compare with the kubelet's settings")
	})
}

// Who holds the local ports.
const (
	portCommand = "ss -antp | head -n 40; sysctl net.ipv4.ip_local_port_range"
	portWhy     = "Find the process that holds the local ports, and how many there are"
)

// noExec returns the mount that keeps the first of the pods from starting a program; empty without pods, or for another
// reason.
func noExec(f *facts.Facts, pods []facts.PodTrouble) string {
	if len(pods) == 0 {
		return ""
	}
	return facts.NoExec(f, pods[0].Words)
}

// canaryFails returns the first step of a canary that failed, if it is one of these.
func canaryFails(f *facts.Facts, steps ...string) *checks.CanaryStep {
	if f.Canary == nil || f.Canary.Status != checks.Unhealthy {
		return nil
	}
	i := slices.IndexFunc(f.Canary.Steps, func(s checks.CanaryStep) bool { return s.Status == checks.StatusCritical })
	if i < 0 || !slices.Contains(steps, f.Canary.Steps[i].Name) {
		return nil
	}
	return &f.Canary.Steps[i]
}

// troubled returns the finding about pods that do not get where they should, nil without any. wrong is a clause: no pod
// can start.
func troubled(f *facts.Facts, pods []facts.PodTrouble, none bool, wrong string) *Finding {
	if len(pods) == 0 {
		return nil
	}
	var e checks.Evidence
	var subjects []checks.Subject
	if image := facts.BaseImage(pods[0].Words); image != "" {
		subjects = append(subjects, checks.Subject{Kind: "Image", Name: image})
	} else if mount := noExec(f, pods); mount != "" {
		subjects = append(subjects, checks.Subject{Kind: "Filesystem", ID: facts.Clean(mount), Name: facts.Clean(mount)})
		Addf(&e.Missing, "whether the program lies in a volume, or its image lacks the right to execute it")
	} else if none && !facts.OfNetwork(pods[0].Words) { // what keeps all pods from starting is none of theirs
		subjects = append(subjects, *facts.DaemonSubject(f))
	}
	step, words := checks.Strong, ""
	for _, t := range pods {
		subjects = append(subjects, checks.Subject{
			Kind: "Pod", ID: ifElse(t.Pod.Name == "", t.Pod.UID, ""), Name: t.Pod.Name, Namespace: t.Pod.Namespace,
			Pod: t.Pod.Name, PodUID: t.Pod.UID,
		})
		words = cmp.Or(words, t.Words)
	}
	by := ifElse(pods[0].Own, "", ifElse(pods[0].Stage == facts.Rejected, "the kubelet says: ", "the kubelet logs: "))
	addIf(words != "", &e.For, "%s%s", by, Quote(words))
	for _, t := range pods[:min(len(pods), facts.MaxRelated)] {
		Addf(&e.For, "%s %s %s", podLabel(t), t.Stage, facts.SinceText(f, t.Since))
	}
	if first := pods[0].Stage; first == facts.Fails || first == facts.NotExecuted {
		step = checks.Fair
	}
	addIf(pods[0].Stage == facts.NotExecuted, &e.Missing,
		"whether it is made for another architecture, or is a script without #! in its first line")
	if words == "" {
		step = checks.Fair
		addGaps(f, &e, gapJournal)
		Addf(&e.Missing, noError)
	}
	reason := Quote(words)
	if _, inner, ok := strings.Cut(words, "container process: "); ok && noExec(f, pods) != "" {
		reason = Quote(strings.TrimRight(inner, `"`))
	}
	for _, why := range []string{
		podLimit(f, words), reservedOf(f, words), fewProcesses(f), noIPv6(f, words), shortDeadline(f),
	} {
		if why != "" {
			reason = why
			e.For = append(e.For, why)
		}
	}
	addIf(facts.CanaryStarts(f), &e.Against, "a canary was created and started, so some pods can start")
	addIf(none && f.Canary == nil, &e.Missing, "whether a canary starts (kdiag node --canary tries one)")
	summary := besides(f, wrong)[0] + after(": ", reason)
	x := newFinding(criticalIf(none), step, summary, e, subjects...)
	x.Waiting = textf("%s for it: %s", units.Count(len(pods), "pod")+units.Plural(len(pods), " waits", " wait"),
		podsLabel(pods))
	return x.advise(func(s *Steps, _ string) { adviseTroubled(f, s, pods, words) })
}

// podLimit says how many pods there are and may be, where the kubelet rejects one for that; else empty.
func podLimit(f *facts.Facts, words string) string {
	s := f.Seen.Settings.Value
	if s.MaxPods == 0 || !facts.Says(words, "(res: pods,", "outofpods", "too many pods") {
		return ""
	}
	n := 0
	for _, p := range f.Seen.Pods.Value {
		n += ifElse(p.Phase == "Failed" || p.Phase == "Succeeded", 0, 1)
	}
	from := ifElse(len(s.Files) > 0, " ("+facts.Clean(strings.Join(s.Files, ", "))+")", "")
	return textf("the node is full: maxPods of the kubelet is %d%s, and it has %s", s.MaxPods, from, units.Count(n, "pod"))
}

// lacking finds the resource of which the kubelet has too little for a pod that it rejects.
var lacking = lazyregexp.New(`\(res: ([\w.-]+), q: `)

// reservedOf says what the kubelet's settings keep from pods of the resource of which a rejected one lacks; else empty.
func reservedOf(f *facts.Facts, words string) string {
	m, s := lacking.FindStringSubmatch(words), f.Seen.Settings.Value
	if m == nil {
		return ""
	}
	var kept []string
	for _, name := range []string{"kubeReserved." + m[1], "systemReserved." + m[1]} {
		if s.Reserved[name] != "" {
			kept = append(kept, name+" "+s.Reserved[name])
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return textf("pods lack %s, of which the kubelet's settings keep %s from them (%s)", m[1],
		facts.Clean(units.List(kept)), facts.Clean(strings.Join(s.Files, ", ")))
}

// fewProcesses says how many processes a pod may have, where that is too few to start one; else empty. runc alone has
// some ten threads, and ends without a word.
func fewProcesses(f *facts.Facts) string {
	const enough = 16
	n := f.Seen.Settings.Value.PodPidsLimit
	if n <= 0 || n >= enough {
		return ""
	}
	return textf("podPidsLimit of the kubelet is %d: a pod may have no more processes and threads", n)
}

// shortDeadline says how soon the kubelet gives up its calls to the runtime, where that is before a pod can be made;
// else empty. What the runtime does for one then ends in all kinds of errors.
func shortDeadline(f *facts.Facts) string {
	t := f.Seen.Settings.Value.RequestTimeout
	if t <= 0 || t >= slowestStart {
		return ""
	}
	return textf("the kubelet gives up each call to the runtime after %s (runtimeRequestTimeout; the default is 2m)", t)
}

// slowestStart is the time in which a pod starts, by the scalability SLOs of Kubernetes.
const slowestStart = 5 * time.Second

// noIPv6 says that the network has addresses of IPv6, which the node does not, where that is why a plugin fails; else
// empty.
func noIPv6(f *facts.Facts, words string) string {
	if c := f.Seen.CNI.Value; c.IPv6Off && facts.OfNetwork(words) && facts.Says(words, "permission denied", "ipv6") {
		return textf("IPv6 is switched off on this node (sysctl disable_ipv6), and %s has a range of it; the plugin says: %s",
			facts.Clean(c.File), Quote(words[strings.LastIndex(words, ": failed")+1:]))
	}
	return ""
}

// noError is missing where no daemon says why pods do not get where they should.
const noError = "an error of the kubelet or the runtime about it"

// podLabel is namespace and name of a pod; of one that is gone the UID.
func podLabel(t facts.PodTrouble) string {
	if t.Pod.Name == "" {
		return facts.Clean("the deleted pod " + t.Pod.UID)
	}
	return facts.Clean(t.Pod.Namespace + "/" + t.Pod.Name)
}

// podsLabel names a few pods, and how many there are more.
func podsLabel(pods []facts.PodTrouble) string { return firstOf(pods, podLabel, "pod") }

// An errorSource is where the reason of an error is found that a daemon logs about a pod.
type errorSource struct{ words, command, why string }

// errorSources are the places for frequent errors.
var errorSources = []errorSource{
	{
		"no IP addresses available", "ls -lt /var/lib/cni/networks/*",
		"Count the addresses in use: files of pods that are gone hold theirs (removed by hand, they are free again)",
	},
	{
		"failed to stat parent", "images",
		"A layer of an image is gone from the disk: find the image, remove it (crictl rmi) and pull it again",
	},
	{
		"failed to get sandbox image", "images",
		"The image that each sandbox begins with is not on the node: pull it where a registry answers, and import it",
	},
	{"overlay", "dmesg -T | tail -n 20", "Read why the kernel refuses the mount"},
	{
		"exit status 127", "$(command -v runc || command -v crun) --version",
		"Run the OCI runtime: with status 127 it, or a library that it needs, was not found",
	},
	{"AppArmor", "cat /sys/module/apparmor/parameters/enabled", "See whether the kernel has AppArmor on"},
	{"exec format error", "uname -m", "Compare it with the architecture of the image's programs: crictl inspecti, file"},
	{"failed to setup network", "ls -l /etc/cni/net.d /opt/cni/bin", "Check the network's configuration and plugins"},
	{noLocalPort, portCommand, portWhy},
	{
		"for the automount of", "grep ' autofs ' /proc/self/mounts; systemctl status --no-pager autofs '*.automount'",
		"Find the automount and the daemon that should serve it: start that, or unmount it (umount -l)",
	},
	{
		"one of the node's own", "ip -br addr",
		"Find the interface with the pod's address: take it away, or move the range of the pods",
	},
	{
		"(ARP)", "ip rule; ip route; ip neigh; bridge link",
		"See whether the way to the pods leads to their bridge, and whether the pod's interface is attached there",
	},
	{
		"received nothing of a part", "ss -tnpi state established | grep -A 1 containerd",
		"Find the connection to the registry: a proxy or a firewall that holds it up; crictl pull tries it anew",
	},
	{": connect: ", "ip rule; ip route show table all", "Look for a rule or a route that keeps the node from its pods"},
}

// podFolder finds the UID of a pod in the path of its folder.
var podFolder = lazyregexp.New(`/pods/([0-9a-f-]{32,36})/`)

// adviseMounted adds the steps that find who holds a volume.
func adviseMounted(s *Steps, t facts.PodTrouble, words string) {
	uid := t.Pod.UID
	if m := podFolder.FindStringSubmatch(words); m != nil {
		uid = m[1] // of a pod that is gone, and has a successor of its name
	}
	if !facts.Safe(uid) {
		return
	}
	s.Look("grep "+uid+" /proc/self/mountinfo", "Look for a mount that was left in the volume: unmount it")
	s.lookIf(strings.Contains(words, "busy"), "find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/fd -lname '*"+uid+
		"*' 2>/dev/null", "Find the processes that are in the volume or have a file of it open")
}

func adviseTroubled(f *facts.Facts, s *Steps, pods []facts.PodTrouble, words string) {
	first := pods[0]
	if first.Stage == facts.StillMounted {
		adviseMounted(s, first, words)
	}
	if mount := noExec(f, pods); facts.SafePath.MatchString(mount) {
		s.Look("findmnt -o TARGET,SOURCE,OPTIONS -T "+mount, "See who mounts it noexec: /etc/fstab or a hardening script")
		s.Add(checks.TouchesMount, "mount -o remount,bind,exec "+mount, "Volumes of pods inherit it; the next start works")
	}
	if first.Stage == facts.Fails {
		s.Look(KubeletLog(f)+" | grep -A 2 'Probe failed' | tail -n 30", "Read what the probes of these pods say")
	}
	if facts.Safe(first.Pod.Name, first.Pod.Namespace) {
		s.Look(KubeletLog(f)+" | grep "+first.Pod.Name+" | tail -n 20", "Read what the kubelet logs about it")
		s.Look(facts.CrictlCommand(f, "pods --namespace "+first.Pod.Namespace+" --name "+first.Pod.Name),
			"See whether the runtime has a sandbox for it, and in which state")
		switch first.Stage {
		case facts.NoManifest:
			folder := f.Seen.Settings.Value.NoManifests
			s.lookIf(facts.SafePath.MatchString(folder), "ls -ld "+folder+"*", "Find the folder: it may have another name")
		case facts.TwoManifests:
			folder := path.Dir(f.Seen.Settings.Value.Twins[0].Files[0])
			s.lookIf(facts.SafePath.MatchString(folder), "ls -lA "+folder,
				"Move the file that is not wanted out of the folder: the kubelet reads all of them, backups too")
		case facts.Rejected:
			*s = (*s)[:len(*s)-1]
			s.restartKubelet(f, "Once that is put right: the kubelet does not try a rejected pod again")
		case facts.Unreachable:
			s.lookIf(strings.Contains(words, "i/o timeout"),
				"ip rule; ip route show table all; iptables-save | grep -E 'DROP|REJECT'",
				"Look for a rule, a route or a filter that keeps the node from its pods")
		}
		if first.Stage == facts.NeverStarted && len(facts.FIFOs(f)) == 0 {
			s.Look(textf("find /var/log/pods/%s_%s_* ! -type f ! -type d ! -type l", first.Pod.Namespace, first.Pod.Name),
				"Find what is no regular file in its log folder: the runtime waits for a reader of a pipe")
		}
	} else if first.Stage != facts.StillMounted {
		s.lookPods("See how far the pods have come")
	}
	s.lookIf(noIPv6(f, words) != "", "sysctl -a 2>/dev/null | grep 'disable_ipv6 = 1'",
		"Switch IPv6 on (sysctl -w net.ipv6.conf.all.disable_ipv6=0), or take its range out of the configuration")
	files := strings.Join(f.Seen.Settings.Value.Files, " ")
	s.lookIf(podLimit(f, words) != "" && facts.SafePath.MatchString(strings.ReplaceAll(files, " ", "/")),
		"grep -ns maxPods "+files, "Read the limit; a kubelet reads it when it starts")
	for _, k := range errorSources {
		if strings.Contains(words, k.words) {
			s.Look(ifElse(k.command == "images", facts.CrictlCommand(f, k.command), k.command), k.why)
			break
		}
	}
	AddService(f, s)
	if strings.Contains(words, "deadline") || first.Stage == facts.NeverStarted {
		addCapture(f, s)
	}
	if f.Pods.NoneStarts {
		s.cordon()
	}
}
