// Package kubeletconfig reads a KubeletConfiguration file and the kubelet's flags that mean the same here, fills in the
// kubelet's defaults, and says of every other setting why it has no effect. Of the kubelet's own ways it leaves out drop-in
// folders (--config-dir) and the flags that only set what is not honoured: those are unknown flags.
package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Load reads a file (none if its name is empty), puts the flags over it, by name with the values in the order in which they
// were given, and completes what is honoured with the kubelet's defaults. The second result names every setting that was
// made and that is not honoured. Unknown fields and flags, and values that cannot be, are errors.
func Load(file string, flags map[string][]string) (*kubeletconfigv1beta1.KubeletConfiguration, []Unsupported, error) {
	doc := map[string]any{"apiVersion": kubeletconfigv1beta1.SchemeGroupVersion.String(), "kind": "KubeletConfiguration"}
	if file != "" {
		data, err := read(file)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the configuration: %w", err)
		}
		dir, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return nil, nil, fmt.Errorf("reading the configuration: %w", err)
		}
		if doc, err = parse(data, dir); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := overlay(doc, flags); err != nil {
		return nil, nil, err
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the configuration with flags: %w", err)
	}
	cfg, err := decode(data)
	if err != nil { // the file is good by itself
		return nil, nil, blame(doc, flags, err)
	}
	ignored := unsupported(doc)
	if ip := net.ParseIP(cfg.Address); cfg.Address != "" && (ip == nil || !ip.IsLoopback()) {
		ignored = append(ignored, Unsupported{"address", cfg.Address, "the server asks nobody who they are, so it listens on loopback only"})
		cfg.Address = ""
	}
	setDefaults(cfg)
	return cfg, ignored, validate(cfg)
}

// maxFile bounds a configuration file, in bytes; those that tools write have some thousand.
const maxFile = 4 << 20

// read reads a file, unless it is a device or a pipe, which may never end.
func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is no regular file, or larger than %d bytes", name, maxFile)
	}
	return os.ReadFile(name)
}

// parse reads a file as the kubelet does, strictly, with relative paths resolved against its folder.
func parse(data []byte, dir string) (map[string]any, error) {
	var whole any
	if err := yaml.Unmarshal(data, &whole); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	doc, ok := whole.(map[string]any)
	if !ok {
		return nil, errors.New("this is no KubeletConfiguration: it has no fields")
	}
	if _, err := decode(data); err != nil {
		return nil, blame(doc, nil, err)
	}
	for _, field := range []string{"staticPodPath", "resolvConf", "podLogsDir"} {
		if path, ok := doc[field].(string); ok && path != "" && !filepath.IsAbs(path) {
			doc[field] = filepath.Join(dir, path)
		}
	}
	return doc, nil
}

func decode(data []byte) (*kubeletconfigv1beta1.KubeletConfiguration, error) {
	scheme := runtime.NewScheme()
	if err := kubeletconfigv1beta1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	obj, err := runtime.Decode(codecs.UniversalDeserializer(), data)
	if err != nil {
		return nil, err
	}
	cfg, ok := obj.(*kubeletconfigv1beta1.KubeletConfiguration)
	if !ok {
		return nil, fmt.Errorf("this is a %s, not a KubeletConfiguration", obj.GetObjectKind().GroupVersionKind().Kind)
	}
	return cfg, nil
}

// blame says which field it is that could not be decoded, or which flag, instead of the name of a Go type. What a field holds
// is not said: a header may hold a password.
func blame(doc map[string]any, flags map[string][]string, err error) error {
	if runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) || runtime.IsNotRegisteredError(err) {
		return errors.New("this is not of kind KubeletConfiguration and apiVersion " + kubeletconfigv1beta1.SchemeGroupVersion.String())
	}
	for _, field := range slices.Sorted(maps.Keys(doc)) {
		data, marshalErr := json.Marshal(map[string]any{field: doc[field]})
		if marshalErr != nil {
			return err
		}
		wrong := json.Unmarshal(data, new(kubeletconfigv1beta1.KubeletConfiguration))
		if wrong == nil {
			continue
		}
		if typed, ok := errors.AsType[*json.UnmarshalTypeError](wrong); ok && typed.Field != "" {
			field = typed.Field
		}
		for _, f := range Flags() {
			if values := flags[f.Name]; f.Field == field && len(values) > 0 {
				return fmt.Errorf("--%s: %q is not a value that it takes", f.Name, values[len(values)-1])
			}
		}
		return fmt.Errorf("%s does not take a value of this kind", field)
	}
	return err
}

// overlay puts the flags over the document. A flag replaces what the file says, but for feature gates, which it adds to.
func overlay(doc map[string]any, flags map[string][]string) error {
	left := maps.Clone(flags)
	for _, f := range Flags() {
		values := flags[f.Name]
		delete(left, f.Name)
		if len(values) == 0 {
			continue
		}
		value, err := f.Kind.parse(values)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.Name, err)
		}
		at, name := doc, f.Field
		for parent, rest, nested := strings.Cut(name, "."); nested; parent, rest, nested = strings.Cut(name, ".") {
			inner, ok := at[parent].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[parent] = inner
			}
			at, name = inner, rest
		}
		if gates, ok := at[name].(map[string]any); ok && f.Kind == Bools {
			maps.Copy(gates, value.(map[string]any))
			continue
		}
		at[name] = value
	}
	if len(left) > 0 {
		return fmt.Errorf("--%s: no such flag", slices.Min(slices.Collect(maps.Keys(left))))
	}
	return nil
}

// leastMonitorInterval is the kubelet's least for containerLogMonitorInterval.
const leastMonitorInterval = 3 * time.Second

// validate refuses what the kubelet refuses (pkg/kubelet/apis/config/validation upstream), of what is honoured.
func validate(c *kubeletconfigv1beta1.KubeletConfiguration) error {
	var errs []string
	check := func(ok bool, field string, value any, must string) {
		if !ok {
			errs = append(errs, fmt.Sprintf("%s is %v: it must be %s", field, value, must))
		}
	}
	all := durations(c)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		check(all[field].Duration > 0, field, all[field].Duration, "more than 0")
	}
	check(c.NodeLeaseDurationSeconds > 0, "nodeLeaseDurationSeconds", c.NodeLeaseDurationSeconds, "more than 0")
	check(c.Port >= 0 && c.Port < 1<<16, "port", c.Port, "at most 65535")
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	check(0 <= low && low < high && high <= 100, "imageGCLowThresholdPercent", low,
		fmt.Sprintf("less than imageGCHighThresholdPercent (%d), both of 0 to 100", high))
	check(c.MaxPods >= 0, "maxPods", c.MaxPods, "0 or more")
	check(c.CgroupDriver == "cgroupfs" || c.CgroupDriver == "systemd", "cgroupDriver", c.CgroupDriver, "cgroupfs or systemd")
	check(*c.RegistryPullQPS >= 0 && c.RegistryBurst >= 0, "registryPullQPS", *c.RegistryPullQPS, "0 or more, and registryBurst too")
	check(*c.EventRecordQPS >= 0 && c.EventBurst >= 0, "eventRecordQPS", *c.EventRecordQPS, "0 or more, and eventBurst too")
	check(*c.KubeAPIQPS >= 0 && c.KubeAPIBurst >= 0, "kubeAPIQPS", *c.KubeAPIQPS, "0 or more, and kubeAPIBurst too")
	check(*c.NodeStatusMaxImages >= -1, "nodeStatusMaxImages", *c.NodeStatusMaxImages, "-1 (all) or more")
	parallel := c.MaxParallelImagePulls
	check(parallel == nil || *parallel >= 1 && (*parallel == 1 || !*c.SerializeImagePulls), "maxParallelImagePulls", number(parallel),
		"1 or more, and at most 1 with serializeImagePulls")
	_, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	check(err == nil, "containerLogMaxSize", c.ContainerLogMaxSize, "a quantity, such as 10Mi")
	check(*c.ContainerLogMaxFiles > 1, "containerLogMaxFiles", *c.ContainerLogMaxFiles, "2 or more")
	check(*c.ContainerLogMaxWorkers > 0, "containerLogMaxWorkers", *c.ContainerLogMaxWorkers, "1 or more")
	check(c.ContainerLogMonitorInterval.Duration >= leastMonitorInterval, "containerLogMonitorInterval", c.ContainerLogMonitorInterval.Duration,
		"at least "+leastMonitorInterval.String())
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		_, ok := c.EvictionSoftGracePeriod[signal]
		check(ok, "evictionSoft", signal, "given an evictionSoftGracePeriod too")
	}
	if len(errs) > 0 {
		return errors.New(strings.Join(errs, "; "))
	}
	return nil
}

func number(p *int32) any {
	if p == nil {
		return "unset"
	}
	return *p
}
