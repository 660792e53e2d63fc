package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/proc"
)

const (
	defaultRootDir = "/var/lib/kubelet"
	// defaultK3sDir is where K3s keeps the files of the kubelet in its process.
	defaultK3sDir = "/var/lib/rancher/k3s"
)

// ErrNoNode is the error on a host without a kubelet's process or files.
var ErrNoNode = errors.New("no kubelet runs here, and none was set up where kubeadm does it")

// ReadSettings reads the settings of the kubelet with this pid: its configuration file, under its drop-ins, under its
// flags, over the kubelet's defaults. With an error they are a part; their Problems are why.
func ReadSettings(ctx context.Context, root string, pid int) (Settings, error) {
	read, err := readGiven(root, pid)
	if err != nil {
		return Settings{}, err
	}
	s := Settings{PID: pid, Files: read.files, Problems: read.problems}
	all, flags := crictl.SeenBy(root, pid), read.flags
	s.fill(&read.Config)
	s.RootDir = cmp.Or(kubeletconfig.Last(flags, "root-dir"), defaultRootDir)
	s.CertDir = cmp.Or(kubeletconfig.Last(flags, "cert-dir"), defaultCertDir)
	s.Kubeconfig = kubeletconfig.Last(flags, "kubeconfig")
	if dir := read.StaticPodPath; dir != "" {
		s.StaticPodPath = oneLine(dir)
		if isAbsent(all, dir) {
			s.NoManifests = oneLine(dir)
		}
		s.Unread = filepath.Clean(dir) != UsualManifests && !hasManifest(all, dir) && hasManifest(all, UsualManifests)
	}
	bootstrap := kubeletconfig.Last(flags, "bootstrap-kubeconfig")
	s.KubeconfigGone = s.Kubeconfig != "" && isAbsent(all, s.Kubeconfig) &&
		(bootstrap == "" || isAbsent(all, bootstrap))
	s.NodeName = nodeName(all, &s, cmp.Or(kubeletconfig.Last(flags, "hostname-override"), hostName(root, pid)))
	if read.StaticPodPath != "" {
		s.Twins = twins(all, read.StaticPodPath, s.NodeName)
	}
	switch {
	case hasRancherEviction(&s):
		s.Own = "evictionHard names imagefs.available and nodefs.available alone, " +
			"as K3s and RKE2 have it by default: nothing is evicted for want of memory or inodes"
	case read.Origin("evictionHard") == kubeletconfig.WithoutConfig:
		s.Own = "evictionHard names nothing, as a kubelet without --config has it by default: " +
			"nothing is evicted for want of memory, disk or inodes"
	}
	s.Harmful = harmful(&s)
	if len(read.Problems) > 0 {
		return s, fmt.Errorf("reading the kubelet's configuration: %s", strings.Join(s.Problems, "; "))
	}
	return s, ctx.Err()
}

// UsualManifests is the folder of static pods by kubeadm and what builds on it.
const UsualManifests = "/etc/kubernetes/manifests"

// hasManifest reports whether the kubelet would read a file of a folder.
func hasManifest(host crictl.HostFiles, dir string) bool {
	files, _ := host.List(dir)
	return slices.ContainsFunc(files, func(file fs.DirEntry) bool {
		return !strings.HasPrefix(file.Name(), ".") && !file.IsDir()
	})
}

// maxManifests bounds how many files of static pods are read.
const maxManifests = 100

// twins returns the static pods that two files of a folder define. The kubelet reads every file whose name does not
// begin with a dot, whatever it ends with (listConfig in pkg/kubelet/config/file_linux.go): a backup, too.
func twins(host crictl.HostFiles, dir, node string) (found []Twin) {
	files, _ := host.List(dir)
	first := map[string]string{}
	for _, file := range files[:min(len(files), maxManifests)] {
		name := filepath.Join(dir, file.Name())
		info, err := host.Stat(name)
		if strings.HasPrefix(file.Name(), ".") || err != nil || !info.Mode().IsRegular() {
			continue
		}
		var pod struct {
			Metadata struct{ Namespace, Name string }
		}
		data, err := host.Read(name)
		if err != nil || yaml.Unmarshal(data, &pod) != nil || pod.Metadata.Name == "" {
			continue
		}
		m := pod.Metadata
		id := cmp.Or(m.Namespace, "default") + "/" + m.Name
		other, has := first[id]
		if first[id] = name; !has {
			continue
		}
		t := Twin{
			Namespace: oneLine(cmp.Or(m.Namespace, "default")), Name: oneLine(m.Name + "-" + node),
			Files: [2]string{oneLine(other), oneLine(name)}, Since: info.ModTime(),
		}
		if before, err := host.Stat(other); err == nil && before.ModTime().After(t.Since) {
			t.Since = before.ModTime()
		}
		found = append(found, t)
	}
	return found
}

// A given holds the flags and files that a kubelet was given.
type given struct {
	*kubeletconfig.Settings
	process         *crictl.KubeletProcess
	flags           map[string][]string
	files, problems []string // in a line each
}

// readGiven reads the flags and files of the kubelet with this pid, over the kubelet's defaults.
func readGiven(root string, pid int) (g given, err error) {
	if g.process, err = crictl.OpenKubelet(root, pid); err != nil {
		return g, fmt.Errorf("reading the kubelet's arguments: %w", err)
	}
	g.flags = g.process.Flags("data-dir")
	if p := g.process.Problem(); p != "" {
		g.problems = append(g.problems, oneLine(p))
	}
	if strings.HasPrefix(g.process.Name(), "k3s") {
		g.problems = append(g.problems, k3s(crictl.SeenBy(root, pid), g.flags))
	}
	g.Settings = kubeletconfig.Read(g.flags, g.process.Files(), g.process.Socket() == "")
	for _, name := range g.Files {
		g.files = append(g.files, oneLine(name))
	}
	for _, p := range g.Problems {
		g.problems = append(g.problems, oneLine(p.Where)+" "+oneLine(p.Err.Error()))
	}
	if !g.IsSet("containerRuntimeEndpoint") {
		g.ContainerRuntimeEndpoint = cmp.Or(g.process.Socket(), g.ContainerRuntimeEndpoint)
	}
	return g, nil
}

// k3s adds the flags that K3s gives to the kubelet in its process and that have well-known values. It returns the
// problem that there are more.
func k3s(all crictl.HostFiles, flags map[string][]string) (problem string) {
	agent := filepath.Join(cmp.Or(kubeletconfig.Last(flags, "data-dir"), defaultK3sDir), "agent")
	for flag, name := range map[string]string{
		"kubeconfig": "kubelet.kubeconfig", "config-dir": "etc/kubelet.conf.d", "tls-cert-file": "serving-kubelet.crt",
	} {
		path := filepath.Join(agent, name)
		if _, err := all.Stat(path); err == nil && len(flags[flag]) == 0 {
			flags[flag] = []string{path}
		}
	}
	return "K3s hands settings to its kubelet inside its process: " +
		"what is in no file and no argument is shown with the kubelet's default"
}

// fill copies the settings that are shown and judged.
func (s *Settings) fill(c *kubeletconfig.Config) {
	s.Endpoint = oneLine(c.ContainerRuntimeEndpoint)
	s.RequestTimeout = c.RuntimeRequestTimeout.Duration
	s.SerializePulls = c.SerializeImagePulls
	s.FeatureGates, s.EventedPLEG = c.FeatureGates, c.Gate("EventedPLEG")
	s.CgroupDriver = oneLine(c.CgroupDriver)
	s.PodLogsDir = c.PodLogsDir
	s.MaxPods, s.PodPidsLimit = c.MaxPods, max(-1, c.PodPidsLimit)
	s.EvictionHard = c.EvictionHard
	all := map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved}
	for of, reserved := range all {
		for name, quantity := range reserved {
			if s.Reserved == nil {
				s.Reserved = map[string]string{}
			}
			s.Reserved[of+"."+oneLine(name)] = oneLine(quantity)
		}
	}
	// Naming one signal turns off all others.
	for _, signal := range slices.Sorted(maps.Keys(kubeletconfig.Defaults().EvictionHard)) {
		if disabled(s.EvictionHard[signal]) {
			s.EvictionOff = append(s.EvictionOff, signal)
		}
	}
	s.NodeStatusEvery, s.LeaseSeconds = c.NodeStatusUpdateFrequency.Duration, c.NodeLeaseDurationSeconds
	s.SyncFrequency = c.SyncFrequency.Duration
	address := func(host string, port int32) string {
		return net.JoinHostPort(oneLine(host), strconv.Itoa(int(port)))
	}
	if c.EnableServer {
		s.Address = address(c.Address, c.Port)
		if c.ReadOnlyPort > 0 {
			s.ReadOnlyAddress = address(c.Address, c.ReadOnlyPort)
		}
	}
	if c.HealthzPort > 0 {
		s.HealthzAddress = address(c.HealthzBindAddress, c.HealthzPort)
	}
	s.RotateClient, s.RotateServing, s.TLSCertFile = c.RotateCertificates, c.ServerTLSBootstrap, c.TLSCertFile
}

// disabled reports whether a threshold is none: the kubelet passes over 0% and 100% (parseThresholdStatement in
// pkg/kubelet/eviction/helpers.go upstream), and does not start with another zero.
func disabled(threshold string) bool {
	return threshold == "100%" || strings.TrimLeft(strings.TrimSuffix(threshold, "%"), "0.") == ""
}

// nodeName is the name that the kubelet registers, in small letters: from its client certificate, by which the API
// server knows it, else from its flag, else the host's.
func nodeName(all crictl.HostFiles, s *Settings, otherwise string) string {
	if _, pem, err := clientPEM(all, s); err == nil {
		if leaf, err := parseCertificate(pem); err == nil {
			if name, ok := strings.CutPrefix(leaf.Subject.CommonName, nodeUser); ok {
				return oneLine(name)
			}
		}
	}
	if otherwise == "" {
		// In a pod, /proc/sys/kernel/hostname is the pod's. The host takes its name from this file at boot.
		text, _ := all.Read("/etc/hostname")
		otherwise = string(text)
	}
	return strings.ToLower(oneLine(otherwise))
}

// hostName is the name that a process has for the host; empty where it may have another one than this process.
func hostName(root string, pid int) string {
	own := proc.Namespace(proc.Self, "uts")
	if own == "" || own != proc.Namespace(proc.Dir(root, pid), "uts") {
		return ""
	}
	name, _ := os.Hostname() // "" is taken for a name that is not known
	return name
}

// errOtherNetwork is why nothing is asked where 127.0.0.1 is another place.
var errOtherNetwork = errors.New(
	"the kubelet is in another network namespace than kdiag; run kdiag with the host's network")

// otherNetwork reports whether a process is known to be in another network namespace than kdiag.
func otherNetwork(root string, pid int) bool {
	return proc.Apart(proc.Self, proc.Dir(root, pid), "net")
}

// AskPing asks the health port of a kubelet that was set up on this host and is not among its processes: the one that
// its unit or its configuration file names, else the default. That nobody listens there is an answer too. On a host
// without a kubelet's files the error is ErrNoNode.
func AskPing(ctx context.Context, root string) (Health, error) {
	all := crictl.SeenBy(root, 0)
	setUp := []string{kubeletconfig.DefaultFile, defaultKubeconfig, filepath.Join(defaultCertDir, clientFile)}
	if !slices.ContainsFunc(setUp, func(name string) bool {
		info, err := all.Stat(name)
		return err == nil && info.Mode().IsRegular()
	}) {
		return Health{}, ErrNoNode
	}
	if otherNetwork(root, 1) {
		return Health{}, fmt.Errorf("asking the kubelet: %w", errOtherNetwork)
	}
	var s Settings
	s.fill(&kubeletconfig.ReadUnit(all.Kubelet()).Config)
	held := holders(ctx, root, s)
	return Health{Missing: "no kubelet runs here", Ping: askPing(ctx, s, held), Holders: held}, nil
}
