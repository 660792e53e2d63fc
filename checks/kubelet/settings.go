package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

const (
	defaultRootDir = "/var/lib/kubelet"
	// defaultK3sDir is where K3s keeps what it hands to the kubelet in its process.
	defaultK3sDir = "/var/lib/rancher/k3s"
)

// flagFields are the kubelet's flags that stand for a field of its configuration file and that Settings show
// (cmd/kubelet/app/options/options.go upstream).
func flagFields() map[string]string {
	return map[string]string{
		"address": "address", "port": "port", "read-only-port": "readOnlyPort",
		"healthz-bind-address": "healthzBindAddress", "healthz-port": "healthzPort",
		"container-runtime-endpoint": "containerRuntimeEndpoint", "runtime-request-timeout": "runtimeRequestTimeout",
		"serialize-image-pulls": "serializeImagePulls", "cgroup-driver": "cgroupDriver", "cgroup-root": "cgroupRoot",
		"max-pods": "maxPods", "pod-max-pids": "podPidsLimit", "eviction-hard": "evictionHard", "feature-gates": "featureGates",
		"node-status-update-frequency": "nodeStatusUpdateFrequency", "sync-frequency": "syncFrequency",
		"rotate-certificates": "rotateCertificates", "rotate-server-certificates": "serverTLSBootstrap",
		"tls-cert-file": "tlsCertFile",
	}
}

// switches are those of them that need no value.
func switches() []string {
	return []string{"serialize-image-pulls", "rotate-certificates", "rotate-server-certificates"}
}

// ownFlags are those that have no field.
func ownFlags() []string {
	return []string{"config", "config-dir", "root-dir", "cert-dir", "kubeconfig", "hostname-override", "data-dir"}
}

// ReadSettings reads what the kubelet with this pid runs with: its configuration file, under its drop-ins, under its flags,
// over the kubelet's defaults. Settings with an error are a part: not all files could be read, as their Problems say.
func ReadSettings(ctx context.Context, root string, pid int) (Settings, error) {
	process, err := crictl.OpenKubelet(root, pid)
	if err != nil {
		return Settings{}, fmt.Errorf("reading the kubelet's arguments: %w", err)
	}
	flags := process.Flags(switches(), append(slices.Collect(maps.Keys(flagFields())), ownFlags()...)...)
	s := Settings{PID: pid}
	if p := process.Problem(); p != "" {
		s.Problems = append(s.Problems, oneLine(p))
	}
	all := seenBy(root, pid)
	if strings.HasPrefix(process.Name(), "k3s") {
		s.Problems = append(s.Problems, k3s(all, flags))
	}
	doc, unread := map[string]any{}, 0
	configFile := last(flags["config"])
	if configFile != "" {
		unread += s.lay(all, configFile, doc)
	}
	if dir := last(flags["config-dir"]); dir != "" {
		names, err := process.DropIns(dir)
		if err != nil {
			s.Problems = append(s.Problems, oneLine(dir)+" "+reasonOf(err))
			unread++
		}
		for _, name := range names {
			if ctx.Err() != nil {
				return s, fmt.Errorf("reading the kubelet's drop-ins: %w", ctx.Err())
			}
			unread += s.lay(all, name, doc)
		}
	}
	layFlags(doc, flags)
	cfg, err := decodeConfig(doc)
	if err != nil {
		s.Problems = append(s.Problems, "the kubelet's configuration "+oneLine(err.Error()))
		unread++
	}
	cfg.ContainerRuntimeEndpoint = cmp.Or(cfg.ContainerRuntimeEndpoint, process.Socket())
	if err := s.fill(cfg); err != nil {
		return s, err
	}
	s.fillFromFlags(flags)
	if s.TLSCertFile != "" && !filepath.IsAbs(s.TLSCertFile) && len(flags["tls-cert-file"]) == 0 {
		s.TLSCertFile = filepath.Join(filepath.Dir(configFile), s.TLSCertFile)
	}
	s.NodeName = nodeName(all, &s, cmp.Or(last(flags["hostname-override"]), hostName(all, root, pid)))
	s.Harmful = harmful(&s)
	if hasRancherEviction(&s) {
		s.Own = "evictionHard names imagefs.available and nodefs.available alone, as K3s and RKE2 have it by default: nothing is evicted for want of memory or inodes"
	}
	if unread > 0 {
		return s, fmt.Errorf("reading the kubelet's configuration: %s", strings.Join(s.Problems, "; "))
	}
	return s, nil
}

// k3s adds the flags that K3s gives to the kubelet in its process and that have well-known values, and says that there are
// more.
func k3s(all files, flags map[string][]string) (problem string) {
	agent := filepath.Join(cmp.Or(last(flags["data-dir"]), defaultK3sDir), "agent")
	for flag, name := range map[string]string{
		"kubeconfig": "kubelet.kubeconfig", "config-dir": "etc/kubelet.conf.d", "tls-cert-file": "serving-kubelet.crt",
	} {
		path := filepath.Join(agent, name)
		if _, err := all.stat(path); err == nil && len(flags[flag]) == 0 {
			flags[flag] = []string{path}
		}
	}
	if len(flags["config-dir"]) == 0 && len(flags["eviction-hard"]) == 0 { // a K3s before 1.32, which hands over flags alone
		flags["eviction-hard"] = []string{"imagefs.available<5%,nodefs.available<5%"}
	}
	return "K3s hands settings to its kubelet inside its process: what is in no file and no argument is shown with the kubelet's default"
}

// lay reads one file over the document, and returns 1 where it could not.
func (s *Settings) lay(all files, name string, doc map[string]any) (unread int) {
	data, err := all.read(name)
	if err == nil {
		var over map[string]any
		if over, err = parseConfig(data); err == nil {
			s.Files = append(s.Files, oneLine(name))
			mergePatch(doc, over)
			return 0
		}
	}
	s.Problems = append(s.Problems, oneLine(name)+" "+reasonOf(err))
	return 1
}

// parseConfig reads a KubeletConfiguration, YAML or JSON, as a document.
func parseConfig(data []byte) (map[string]any, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("is malformed: %s", oneLine(err.Error()))
	}
	if kind, ok := doc["kind"].(string); ok && kind != "KubeletConfiguration" {
		return nil, fmt.Errorf("is a %s, not a KubeletConfiguration", oneLine(kind))
	}
	return doc, nil
}

// mergePatch lays one document over another as the kubelet does with drop-ins (RFC 7396: maps are merged, null removes, all
// else replaces; mergeKubeletConfigurations in cmd/kubelet/app/server.go upstream).
func mergePatch(doc, over map[string]any) {
	for key, value := range over {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(doc, key)
		case isMap:
			below, ok := doc[key].(map[string]any)
			if !ok {
				below = map[string]any{}
				doc[key] = below
			}
			mergePatch(below, inner)
		default:
			doc[key] = value
		}
	}
}

// layFlags puts the flags over the document. A flag replaces what the files say, but for feature gates, which it adds to.
func layFlags(doc map[string]any, flags map[string][]string) {
	for flag, field := range flagFields() {
		values := flags[flag]
		switch {
		case len(values) == 0:
		case flag == "eviction-hard":
			thresholds := map[string]any{}
			for pair := range strings.SplitSeq(strings.Join(values, ","), ",") {
				if signal, threshold, ok := strings.Cut(pair, "<"); ok {
					thresholds[strings.TrimSpace(signal)] = strings.TrimSpace(threshold)
				}
			}
			doc[field] = thresholds
		case flag == "feature-gates":
			gates := map[string]any{}
			for pair := range strings.SplitSeq(strings.Join(values, ","), ",") {
				gate, value, _ := strings.Cut(pair, "=")
				if on, err := strconv.ParseBool(strings.TrimSpace(value)); err == nil {
					gates[strings.TrimSpace(gate)] = on
				}
			}
			mergePatch(doc, map[string]any{field: gates})
		default:
			doc[field] = scalar(last(values))
		}
	}
}

// scalar is the value of a flag as its field has it in JSON.
func scalar(value string) any {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if on, err := strconv.ParseBool(value); err == nil {
		return on
	}
	return value
}

// decodeConfig turns a document into the configuration. Fields that this version of Kubernetes does not know are no error:
// the kubelet may be a newer one.
func decodeConfig(doc map[string]any) (*kubeletconfigv1beta1.KubeletConfiguration, error) {
	cfg := &kubeletconfigv1beta1.KubeletConfiguration{}
	data, err := json.Marshal(doc)
	if err != nil {
		return cfg, fmt.Errorf("cannot be joined: %w", err)
	}
	if err := json.Unmarshal(data, cfg); err != nil {
		return cfg, fmt.Errorf("has a value of a wrong kind: %w", err)
	}
	return cfg, nil
}

// fill sets what the configuration says, and where it is silent the kubelet's default
// (pkg/kubelet/apis/config/v1beta1/defaults.go upstream).
func (s *Settings) fill(c *kubeletconfigv1beta1.KubeletConfiguration) error {
	d := kubeletconfig.Defaults()
	s.Endpoint = oneLine(cmp.Or(c.ContainerRuntimeEndpoint, d.ContainerRuntimeEndpoint))
	s.RequestTimeout = cmp.Or(c.RuntimeRequestTimeout.Duration, d.RuntimeRequestTimeout.Duration)
	if c.MaxParallelImagePulls != nil {
		s.ParallelPulls = *c.MaxParallelImagePulls
	}
	s.SerializePulls = s.ParallelPulls < 2
	if c.SerializeImagePulls != nil {
		s.SerializePulls = *c.SerializeImagePulls
	}
	s.FeatureGates = c.FeatureGates
	s.EventedPLEG = c.FeatureGates["AllAlpha"] // the gate is alpha: off unless it, or all of them, are on
	if on, ok := c.FeatureGates["EventedPLEG"]; ok {
		s.EventedPLEG = on
	}
	s.CgroupDriver = oneLine(cmp.Or(c.CgroupDriver, d.CgroupDriver))
	s.CgroupRoot = oneLine(cmp.Or(c.CgroupRoot, "/"))
	s.PodLogsDir = cmp.Or(c.PodLogsDir, d.PodLogsDir)
	s.MaxPods = cmp.Or(c.MaxPods, d.MaxPods)
	s.PodPidsLimit = -1
	if c.PodPidsLimit != nil {
		s.PodPidsLimit = max(-1, *c.PodPidsLimit)
	}
	s.fillEviction(c, d.EvictionHard)
	s.NodeStatusEvery = cmp.Or(c.NodeStatusUpdateFrequency.Duration, d.NodeStatusUpdateFrequency.Duration)
	s.LeaseSeconds = cmp.Or(c.NodeLeaseDurationSeconds, d.NodeLeaseDurationSeconds)
	s.SyncFrequency = cmp.Or(c.SyncFrequency.Duration, d.SyncFrequency.Duration)
	s.fillAddresses(c)
	s.RotateClient, s.RotateServing = c.RotateCertificates, c.ServerTLSBootstrap
	s.TLSCertFile = c.TLSCertFile
	return nil
}

// fillAddresses sets where the kubelet serves. The ports are those of pkg/cluster/ports upstream.
func (s *Settings) fillAddresses(c *kubeletconfigv1beta1.KubeletConfiguration) {
	at := func(host string, port int32) string {
		return net.JoinHostPort(oneLine(host), strconv.Itoa(int(port)))
	}
	host := cmp.Or(c.Address, "0.0.0.0")
	if c.EnableServer == nil || *c.EnableServer {
		s.Address = at(host, cmp.Or(c.Port, 10250))
		if c.ReadOnlyPort > 0 {
			s.ReadOnlyAddress = at(host, c.ReadOnlyPort)
		}
	}
	healthz := int32(10248)
	if c.HealthzPort != nil {
		healthz = *c.HealthzPort
	}
	if healthz > 0 {
		s.HealthzAddress = at(cmp.Or(c.HealthzBindAddress, "127.0.0.1"), healthz)
	}
}

// fillEviction applies the default thresholds as the kubelet does: only when there is no evictionHard at all, or when told
// to fill up. Naming one signal turns off all others.
func (s *Settings) fillEviction(c *kubeletconfigv1beta1.KubeletConfiguration, defaults map[string]string) {
	s.EvictionHard = map[string]string{}
	if c.EvictionHard == nil || c.MergeDefaultEvictionSettings != nil && *c.MergeDefaultEvictionSettings {
		maps.Copy(s.EvictionHard, defaults)
	}
	maps.Copy(s.EvictionHard, c.EvictionHard)
	for _, signal := range slices.Sorted(maps.Keys(defaults)) {
		if disabled(s.EvictionHard[signal]) {
			s.EvictionOff = append(s.EvictionOff, signal)
		}
	}
}

// disabled reports whether a threshold is none: the kubelet passes over 0% and 100% (parseThresholdStatement in
// pkg/kubelet/eviction/helpers.go upstream), and does not start with another zero.
func disabled(threshold string) bool {
	return threshold == "100%" || strings.TrimLeft(strings.TrimSuffix(threshold, "%"), "0.") == ""
}

func (s *Settings) fillFromFlags(flags map[string][]string) {
	s.RootDir = cmp.Or(last(flags["root-dir"]), defaultRootDir)
	s.CertDir = cmp.Or(last(flags["cert-dir"]), defaultCertDir)
	s.Kubeconfig = last(flags["kubeconfig"])
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// nodeName is the name that the kubelet registers: that of its client certificate, which the API server goes by, else that
// of its flag, else the host's, in small letters.
func nodeName(all files, s *Settings, otherwise string) string {
	if pem, err := clientPEM(all, s); err == nil {
		if leaf, err := parseCertificate(pem); err == nil {
			if name, ok := strings.CutPrefix(leaf.Subject.CommonName, nodeUser); ok {
				return oneLine(name)
			}
		}
	}
	return strings.ToLower(oneLine(otherwise))
}

// hostName is the host's name as the kubelet is told it. The kernel tells each reader the name of its own UTS namespace: to a pod, the pod's.
// There the file must do from which the host takes its name at boot.
func hostName(all files, root string, pid int) string {
	name := "/proc/sys/kernel/hostname"
	if apart(root, pid, "uts") {
		name = "/etc/hostname"
	}
	text, _ := all.read(name)
	return string(text)
}
