package kubeletconfig

import (
	"fmt"
	"strconv"
	"strings"
)

// A Kind is how the text of a flag becomes the value of a field.
type Kind int

// The kinds. From List on they are lists, to which a repeated flag adds.
const (
	Text   Kind = iota
	Switch      // true or false; without a value true
	Number
	Period  // 1m30s
	List    // a,b
	Pairs   // a=b,c=d
	Less    // a<b,c<d
	Gates   // a=true,b=false; merged with those of the files
	Headers // a:b,a:c
	Taints  // key=value:effect,...
)

// A Flag is one of the kubelet's flags (cmd/kubelet/app/options upstream).
type Flag struct {
	Name  string // without dashes
	Usage string // empty for a flag without effect in a syncLoop
	Field string // of KubeletConfiguration, with a dot inside another field; empty for what only a flag can set
	Kind  Kind
}

// Flags returns the flags that are read, in the order of the configuration's fields.
func Flags() []Flag {
	return []Flag{
		{"pod-manifest-path", "folder of static pod manifests, or a single one", "staticPodPath", Text},
		{"sync-frequency", "time between syncs of a pod that is well", "syncFrequency", Period},
		{"file-check-frequency", "time between readings of the manifests", "fileCheckFrequency", Period},
		{"http-check-frequency", "time between readings of the manifest URL", "httpCheckFrequency", Period},
		{"manifest-url", "URL of a pod, or of a list of pods, to run", "staticPodURL", Text},
		{"manifest-url-header", "headers of requests to the manifest URL, as a:b,c:d", "staticPodURLHeader", Headers},
		{"address", "loopback address to serve on", "address", Text},
		{"port", "port to serve on; 0 is any free one", "port", Number},
		{"registry-qps", "image pulls per second; 0 is no limit", "registryPullQPS", Number},
		{"registry-burst", "image pulls at once beyond their rate", "registryBurst", Number},
		{"event-qps", "events sent per second", "eventRecordQPS", Number},
		{"event-burst", "events sent at once beyond their rate", "eventBurst", Number},
		{"enable-debugging-handlers", "serve /configz and /debug too", "enableDebuggingHandlers", Switch},
		{"cluster-domain", "domain that containers search besides the host's", "clusterDomain", Text},
		{"cluster-dns", "DNS servers of pods with dnsPolicy ClusterFirst", "clusterDNS", List},
		{"node-status-update-frequency", "time between looks at the node's status", "nodeStatusUpdateFrequency", Period},
		{"minimum-image-ttl-duration", "least age of an unused image that may be removed", "imageMinimumGCAge", Period},
		{"image-gc-high-threshold", "percent of the disk in use that starts image collection", "imageGCHighThresholdPercent", Number},
		{"image-gc-low-threshold", "percent of the disk in use that ends image collection", "imageGCLowThresholdPercent", Number},
		{"cgroup-root", "cgroup above those of all pods", "cgroupRoot", Text},
		{"cgroup-driver", "cgroupfs or systemd, as the runtime has it", "cgroupDriver", Text},
		{"runtime-request-timeout", "deadline of a CRI call", "runtimeRequestTimeout", Period},
		{"max-pods", "most pods on the node", "maxPods", Number},
		{"resolv-conf", "resolver configuration that containers start from", "resolvConf", Text},
		{"node-status-max-images", "most images in the node's status; -1 is all", "nodeStatusMaxImages", Number},
		{"kube-api-content-type", "content type of requests to the API server", "contentType", Text},
		{"kube-api-qps", "requests to the API server per second", "kubeAPIQPS", Number},
		{"kube-api-burst", "requests to the API server at once beyond their rate", "kubeAPIBurst", Number},
		{"serialize-image-pulls", "pull one image at a time", "serializeImagePulls", Switch},
		{"eviction-hard", "thresholds that evict at once, as memory.available<1Gi", "evictionHard", Less},
		{"eviction-soft", "thresholds that evict after a grace period", "evictionSoft", Less},
		{"eviction-soft-grace-period", "grace periods of the soft thresholds, as memory.available=1m30s", "evictionSoftGracePeriod", Pairs},
		{"eviction-pressure-transition-period", "time for which a pressure is reported after it ended", "evictionPressureTransitionPeriod", Period},
		{"eviction-max-pod-grace-period", "most seconds of grace for a pod evicted by a soft threshold", "evictionMaxPodGracePeriod", Number},
		{"eviction-minimum-reclaim", "least to free when evicting, as imagefs.available=2Gi", "evictionMinimumReclaim", Pairs},
		{"feature-gates", "features to turn on or off: EventedPLEG, PLEGOnDemandRelist", "featureGates", Gates},
		{"v", "verbosity of the log", "logging.verbosity", Number},
		{"seccomp-default", "RuntimeDefault as the seccomp profile of containers that name none", "seccompDefault", Switch},
		{"register-with-taints", "taints to register the node with, as key=value:effect", "registerWithTaints", Taints},
		{"register-node", "register the node at the API server", "registerNode", Switch},
		{"container-runtime-endpoint", "socket of the container runtime", "containerRuntimeEndpoint", Text},
		{"read-only-port", "", "readOnlyPort", Number},
		{"healthz-bind-address", "", "healthzBindAddress", Text},
		{"healthz-port", "", "healthzPort", Number},
		{"tls-cert-file", "", "tlsCertFile", Text},
		{"rotate-certificates", "", "rotateCertificates", Switch},
		{"rotate-server-certificates", "", "serverTLSBootstrap", Switch},
		{"pod-max-pids", "", "podPidsLimit", Number},
		{"config", "", "", Text},
		{"config-dir", "", "", Text},
		{"root-dir", "", "", Text},
		{"cert-dir", "", "", Text},
		{"kubeconfig", "", "", Text},
		{"hostname-override", "", "", Text},
		{"maximum-dead-containers-per-container", "", "", Number},
		{"minimum-container-ttl-duration", "", "", Period},
	}
}

// ParseFlags returns every value of the kubelet's flags among a command's arguments, in order, and of more flags with
// a value. Both --flag value and --flag=value are understood, an underscore counts as a dash and "--" ends the flags,
// as in the kubelet. Other flags are passed over, without knowing whether they take a value.
func ParseFlags(args []string, more ...string) map[string][]string {
	kinds := map[string]Kind{}
	for _, f := range Flags() {
		kinds[f.Name] = f.Kind
	}
	for _, name := range more {
		kinds[name] = Text
	}
	out := map[string][]string{}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		body, ok := strings.CutPrefix(args[i], "--")
		if !ok && strings.HasPrefix(args[i], "-v") { // klog's verbosity has one dash as often as two
			body, ok = args[i][1:], true
		}
		name, value, joined := strings.Cut(body, "=")
		name = strings.ReplaceAll(name, "_", "-")
		kind, known := kinds[name]
		switch {
		case !ok || !known:
			continue
		case joined:
		case kind == Switch:
			value = "true"
		case i+1 == len(args):
			return out
		default:
			i++
			value = args[i]
		}
		out[name] = append(out[name], value)
	}
	return out
}

// Last returns the last value of a flag, which is the one that counts; empty without the flag.
func Last(flags map[string][]string, name string) string {
	if values := flags[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// applyFlags puts the flags over what the files set. It returns which flag, as --name, has set a field.
func (s *Settings) applyFlags(flags map[string][]string) (from map[string]string) {
	from = map[string]string{}
	for _, f := range Flags() {
		values := flags[f.Name]
		if len(values) == 0 || f.Field == "" {
			continue
		}
		value, err := f.Kind.parse(values)
		if err != nil {
			s.Problems = append(s.Problems, Problem{"--" + f.Name, err, false})
			continue
		}
		field, inner, nested := strings.Cut(f.Field, ".")
		switch {
		case nested:
			mergePatch(s.set, map[string]any{field: map[string]any{inner: value}})
		case f.Kind == Gates:
			mergePatch(s.set, map[string]any{field: value})
		default:
			s.set[field] = value
		}
		from[field] = "--" + f.Name
	}
	return from
}

// parse turns the values of a flag, in the order given, into the value of its field in JSON. A period is checked with
// its field.
func (k Kind) parse(values []string) (any, error) {
	last := values[len(values)-1]
	switch k {
	case Switch:
		return parseBool(last)
	case Number:
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", last)
		}
		return n, nil
	case Text, Period:
		return last, nil
	}
	list, pairs, headers := []any{}, map[string]any{}, map[string][]string{}
	for item := range strings.FieldsFuncSeq(strings.Join(values, ","), func(r rune) bool { return r == ',' }) {
		item = strings.TrimSpace(item)
		if k == List {
			list = append(list, item)
			continue
		}
		separator := map[Kind]string{Pairs: "=", Less: "<", Gates: "=", Headers: ":", Taints: ":"}[k]
		name, value, ok := strings.Cut(item, separator)
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form name%svalue", item, separator)
		}
		headers[name] = append(headers[name], value)
		pairs[name] = value
		switch k {
		case Gates:
			on, err := parseBool(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			pairs[name] = on
		case Taints:
			key, text, _ := strings.Cut(name, "=")
			list = append(list, map[string]any{"key": key, "value": text, "effect": value})
		}
	}
	switch k {
	case List, Taints:
		return list, nil
	case Headers:
		return headers, nil
	}
	return pairs, nil
}

func parseBool(s string) (bool, error) {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", s)
	}
	return on, nil
}
