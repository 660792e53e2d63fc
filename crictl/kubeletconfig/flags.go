package kubeletconfig

import (
	"slices"
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
	Period // 1m30s
	List   // a,b
	Pairs  // a=b,c=d
	Less   // a<b,c<d
	Gates  // a=true,b=false; merged with the files' gates
)

// String names the kind as the help of a command does.
func (k Kind) String() string {
	return [...]string{
		Text: "string", Switch: "bool", Number: "int", Period: "duration", List: "strings", Pairs: "mapStringString",
		Less: "mapStringString", Gates: "mapStringBool",
	}[k]
}

// A Flag is one of the kubelet's flags (cmd/kubelet/app/options upstream).
type Flag struct {
	Name  string // without dashes
	Usage string // empty for a flag without effect in a syncLoop
	Field string // of KubeletConfiguration, with a dot inside another field; empty if only a flag can set it
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
		{"address", "address to serve on; only loopback without authentication", "address", Text},
		{"port", "port to serve on; 0 is any free one", "port", Number},
		{"tls-cert-file", "serving certificate (default: one is made below --root-dir)", "tlsCertFile", Text},
		{"tls-private-key-file", "key of the serving certificate", "tlsPrivateKeyFile", Text},
		{"client-ca-file", "CAs whose client certificates are accepted", "authentication.x509.clientCAFile", Text},
		{"anonymous-auth", "ask nobody for credentials", "authentication.anonymous.enabled", Switch},
		{"authentication-token-webhook", "take bearer tokens", "authentication.webhook.enabled", Switch},
		{"authorization-mode", "AlwaysAllow, or Webhook for the API server's judgement", "authorization.mode", Text},
		{"registry-qps", "image pulls per second; 0 is no limit", "registryPullQPS", Number},
		{"registry-burst", "image pulls at once beyond their rate", "registryBurst", Number},
		{"event-qps", "events sent per second", "eventRecordQPS", Number},
		{"event-burst", "events sent at once beyond their rate", "eventBurst", Number},
		{"enable-debugging-handlers", "serve /configz and /debug too", "enableDebuggingHandlers", Switch},
		{"cluster-domain", "domain that containers search besides the host's", "clusterDomain", Text},
		{"cluster-dns", "DNS servers of pods with dnsPolicy ClusterFirst", "clusterDNS", List},
		{
			"node-status-update-frequency", "time between looks at the node's status",
			"nodeStatusUpdateFrequency", Period,
		},
		{"minimum-image-ttl-duration", "least age of an unused image that may be removed", "imageMinimumGCAge", Period},
		{
			"image-gc-high-threshold", "percent of the disk in use that starts image collection",
			"imageGCHighThresholdPercent", Number,
		},
		{
			"image-gc-low-threshold", "percent of the disk in use that ends image collection",
			"imageGCLowThresholdPercent", Number,
		},
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
		{"eviction-hard", "thresholds that evict at once, as memory.available<1Gi", "evictionHard", Pairs},
		{"eviction-soft", "thresholds that evict after a grace period", "evictionSoft", Pairs},
		{
			"eviction-soft-grace-period", "grace periods of the soft thresholds, as memory.available=1m30s",
			"evictionSoftGracePeriod", Pairs,
		},
		{
			"eviction-pressure-transition-period", "time for which a pressure is reported after it ended",
			"evictionPressureTransitionPeriod", Period,
		},
		{
			"eviction-max-pod-grace-period", "most seconds of grace for a pod evicted by a soft threshold",
			"evictionMaxPodGracePeriod", Number,
		},
		{
			"eviction-minimum-reclaim", "least to free when evicting, as imagefs.available=2Gi",
			"evictionMinimumReclaim", Pairs,
		},
		{"feature-gates", "features to turn on or off: EventedPLEG, PLEGOnDemandRelist", "featureGates", Gates},
		{"v", "verbosity of the log", "logging.verbosity", Number},
		{
			"seccomp-default", "RuntimeDefault as the seccomp profile of containers that name none",
			"seccompDefault", Switch,
		},
		{"register-node", "register the node at the API server", "registerNode", Switch},
		{"container-runtime-endpoint", "socket of the container runtime", "containerRuntimeEndpoint", Text},
		{"read-only-port", "", "readOnlyPort", Number},
		{"healthz-bind-address", "", "healthzBindAddress", Text},
		{"healthz-port", "", "healthzPort", Number},
		{"rotate-certificates", "", "rotateCertificates", Switch},
		{"rotate-server-certificates", "", "serverTLSBootstrap", Switch},
		{"pod-max-pids", "", "podPidsLimit", Number},
		{"image-service-endpoint", "", "imageServiceEndpoint", Text},
		{"container-log-max-size", "", "containerLogMaxSize", Text},
		{"volume-stats-agg-period", "", "volumeStatsAggPeriod", Period},
		{"fail-swap-on", "", "failSwapOn", Switch},
		{"fail-cgroupv1", "", "failCgroupV1", Switch},
		{"kube-reserved", "", "kubeReserved", Pairs},
		{"system-reserved", "", "systemReserved", Pairs},
		{"config", "", "", Text},
		{"config-dir", "", "", Text},
		{"root-dir", "", "", Text},
		{"cert-dir", "", "", Text},
		{"kubeconfig", "", "", Text},
		{"hostname-override", "", "", Text},
		{"maximum-dead-containers-per-container", "dead instances to keep of a container; -1 is all", "", Number},
		{"maximum-dead-containers", "dead containers to keep on the node; -1 is all", "", Number},
		{"minimum-container-ttl-duration", "least age of a dead container that may be removed", "", Period},
		{"housekeeping-interval", "", "", Period},
	}
}

// ParseFlags returns every value of the kubelet's flags among a command's arguments, in order, and of more flags with
// a value. Both --flag value and --flag=value are understood, and "--" ends the flags, as in the kubelet. Other flags
// are passed over, without knowing whether they take a value.
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

// applyFlags overrides the files' settings by the flags.
func (s *Settings) applyFlags(flags map[string][]string) {
	for _, f := range Flags() {
		values := flags[f.Name]
		if len(values) == 0 || f.Field == "" {
			continue
		}
		value, err := f.Kind.parse(values)
		path := strings.Split(f.Field, ".")
		field := path[0]
		switch {
		case err != nil:
			s.Problems = append(s.Problems, Problem{"--" + f.Name, errWrongValue})
		case len(path) > 1 || f.Kind == Gates:
			for _, inner := range slices.Backward(path[1:]) {
				value = map[string]any{inner: value}
			}
			mergePatch(s.set, map[string]any{field: value})
		default:
			s.set[field] = value
		}
		s.note("--"+f.Name, map[string]any{field: value})
	}
}

// parse turns the values of a flag, in the order given, into the value of its field in JSON. A period is checked with
// its field.
func (k Kind) parse(values []string) (any, error) {
	last := values[len(values)-1]
	switch k {
	case Switch:
		return strconv.ParseBool(last)
	case Number:
		return strconv.ParseInt(last, 10, 64)
	case Text, Period:
		return last, nil
	}
	list, pairs := []any{}, map[string]any{}
	for item := range strings.FieldsFuncSeq(strings.Join(values, ","), func(r rune) bool { return r == ',' }) {
		item = strings.TrimSpace(item)
		if k == List {
			list = append(list, item)
			continue
		}
		at := strings.IndexAny(item, "=<")
		if at < 1 {
			return nil, errWrongValue
		}
		name, value := strings.TrimSpace(item[:at]), strings.TrimSpace(item[at+1:])
		pairs[name] = value
		if k == Gates {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return nil, err
			}
			pairs[name] = on
		}
	}
	if k == List {
		return list, nil
	}
	return pairs, nil
}
