package kubeletconfig

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Kind is how the text of a flag becomes the value of a field.
type Kind int

// The kinds.
const (
	String   Kind = iota
	Bool          // true or false; without a value true
	Int           // a whole number
	Duration      // 1m30s
	Strings       // a,b; a repeated flag adds to it
	Pairs         // a=b,c=d; likewise
	Less          // a<b,c<d; likewise
	Bools         // a=true,b=false; likewise
	Headers       // a:b,a:c; likewise
	Taints        // key=value:effect,...; likewise
)

// A Flag is one of the kubelet's flags, with its meaning.
type Flag struct {
	Name  string // without dashes
	Usage string
	Field string // of KubeletConfiguration, with dots inside other fields
	Kind  Kind
}

// Flags returns the kubelet's flags that Load takes, in the order of the configuration's fields
// (cmd/kubelet/app/options/options.go upstream).
func Flags() []Flag {
	return []Flag{
		{"pod-manifest-path", "folder of static pod manifests, or a single one", "staticPodPath", String},
		{"sync-frequency", "time between syncs of a pod that is well", "syncFrequency", Duration},
		{"file-check-frequency", "time between readings of the manifests", "fileCheckFrequency", Duration},
		{"http-check-frequency", "time between readings of the manifest URL", "httpCheckFrequency", Duration},
		{"manifest-url", "URL of a pod, or of a list of pods, to run", "staticPodURL", String},
		{"manifest-url-header", "headers of requests to the manifest URL, as a:b,c:d", "staticPodURLHeader", Headers},
		{"address", "loopback address to serve on", "address", String},
		{"port", "port to serve on; 0 is any free one", "port", Int},
		{"registry-qps", "image pulls per second; 0 is no limit", "registryPullQPS", Int},
		{"registry-burst", "image pulls at once beyond their rate", "registryBurst", Int},
		{"event-qps", "events sent per second", "eventRecordQPS", Int},
		{"event-burst", "events sent at once beyond their rate", "eventBurst", Int},
		{"enable-debugging-handlers", "serve /runningpods/, /configz and /debug too", "enableDebuggingHandlers", Bool},
		{"cluster-domain", "domain that containers search besides the host's", "clusterDomain", String},
		{"cluster-dns", "DNS servers of pods with dnsPolicy ClusterFirst", "clusterDNS", Strings},
		{"node-status-update-frequency", "time between looks at the node's status", "nodeStatusUpdateFrequency", Duration},
		{"minimum-image-ttl-duration", "least age of an unused image that may be removed", "imageMinimumGCAge", Duration},
		{"image-gc-high-threshold", "percent of the disk in use that starts image collection", "imageGCHighThresholdPercent", Int},
		{"image-gc-low-threshold", "percent of the disk in use that ends image collection", "imageGCLowThresholdPercent", Int},
		{"cgroup-root", "cgroup above those of all pods", "cgroupRoot", String},
		{"cgroup-driver", "cgroupfs or systemd, as the runtime has it", "cgroupDriver", String},
		{"runtime-request-timeout", "deadline of a CRI call", "runtimeRequestTimeout", Duration},
		{"max-pods", "most pods on the node", "maxPods", Int},
		{"resolv-conf", "resolver configuration that containers start from", "resolvConf", String},
		{"container-log-max-size", "size at which a container's log is rotated, as 10Mi", "containerLogMaxSize", String},
		{"container-log-max-files", "most files of one container's log, at least 2", "containerLogMaxFiles", Int},
		{"node-status-max-images", "most images in the node's status; -1 is all", "nodeStatusMaxImages", Int},
		{"kube-api-content-type", "content type of requests to the API server", "contentType", String},
		{"kube-api-qps", "requests to the API server per second", "kubeAPIQPS", Int},
		{"kube-api-burst", "requests to the API server at once beyond their rate", "kubeAPIBurst", Int},
		{"serialize-image-pulls", "pull one image at a time", "serializeImagePulls", Bool},
		{"eviction-hard", "thresholds that evict at once, as memory.available<1Gi", "evictionHard", Less},
		{"eviction-soft", "thresholds that evict after a grace period", "evictionSoft", Less},
		{"eviction-soft-grace-period", "grace periods of the soft thresholds, as memory.available=1m30s", "evictionSoftGracePeriod", Pairs},
		{"eviction-pressure-transition-period", "time for which a pressure is reported after it ended", "evictionPressureTransitionPeriod", Duration},
		{"eviction-max-pod-grace-period", "most seconds of grace for a pod evicted by a soft threshold", "evictionMaxPodGracePeriod", Int},
		{"eviction-minimum-reclaim", "least to free when evicting, as imagefs.available=2Gi", "evictionMinimumReclaim", Pairs},
		{"feature-gates", "features to turn on or off: EventedPLEG, PLEGOnDemandRelist", "featureGates", Bools},
		{"v", "verbosity of the log", "logging.verbosity", Int},
		{"seccomp-default", "RuntimeDefault as the seccomp profile of containers that name none", "seccompDefault", Bool},
		{"register-with-taints", "taints to register the node with, as key=value:effect", "registerWithTaints", Taints},
		{"register-node", "register the node at the API server", "registerNode", Bool},
		{"container-runtime-endpoint", "socket of the container runtime", "containerRuntimeEndpoint", String},
		{"image-service-endpoint", "socket of the image service, if it is another one", "imageServiceEndpoint", String},
	}
}

// parse turns the values of a flag, in the order given, into what a field's JSON has.
func (k Kind) parse(values []string) (any, error) {
	last := values[len(values)-1]
	switch k {
	case Bool:
		return parseBool(last)
	case Int:
		n, err := strconv.ParseInt(last, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number, or too great", last)
		}
		return n, nil
	case Duration:
		if _, err := time.ParseDuration(last); err != nil {
			return nil, fmt.Errorf("%q is not a duration, such as 1m30s", last)
		}
		return last, nil
	case Strings, Pairs, Less, Bools, Headers, Taints:
		return k.list(strings.FieldsFunc(strings.Join(values, ","), func(r rune) bool { return r == ',' }))
	}
	return last, nil
}

func (k Kind) list(items []string) (any, error) {
	list, pairs, headers := []any{}, map[string]any{}, map[string][]string{}
	for _, item := range items {
		switch item = strings.TrimSpace(item); k {
		case Strings:
			list = append(list, item)
		case Taints:
			taint, err := parseTaint(item)
			if err != nil {
				return nil, err
			}
			list = append(list, taint)
		default:
			separator := map[Kind]string{Pairs: "=", Bools: "=", Less: "<", Headers: ":"}[k]
			name, value, ok := strings.Cut(item, separator)
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			if !ok || name == "" {
				return nil, fmt.Errorf("%q is not of the form name%svalue", item, separator)
			}
			headers[name] = append(headers[name], value)
			pairs[name] = value
			if k == Bools {
				on, err := parseBool(value)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				pairs[name] = on
			}
		}
	}
	switch k {
	case Strings, Taints:
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

func parseTaint(s string) (map[string]any, error) {
	rest, effect, ok := cutLast(s, ":")
	key, value, _ := strings.Cut(rest, "=")
	if !ok || key == "" || effect == "" {
		return nil, errors.New(strconv.Quote(s) + " is not of the form key=value:effect")
	}
	return map[string]any{"key": key, "value": value, "effect": effect}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
