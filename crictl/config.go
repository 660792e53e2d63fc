package crictl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// maxConfig bounds a configuration file. The kubelet's own is a few kilobytes.
const maxConfig = 1 << 20

// readFile reads a small regular file. It opens without blocking, so that a FIFO in the file's place does not hold us.
func readFile(name string) ([]byte, error) {
	return readUpTo(name, maxConfig)
}

func readUpTo(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is %s, not a regular file", kindOf(info.Mode()))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("is larger than %d bytes", limit)
	}
	return data, nil
}

// reasonOf words a failed look for Tried and Unreadable, without the path, which stands beside it.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "may not be read by this user"
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return oneLine(path.Err.Error())
	}
	return oneLine(err.Error())
}

// parseCrictlConfig reads crictl's configuration, of which one key matters here:
//
//	runtime-endpoint: unix:///run/containerd/containerd.sock
//	image-endpoint: unix:///run/containerd/containerd.sock
//	timeout: 10
//
// Other keys are ignored whatever they hold.
func parseCrictlConfig(data []byte) (endpoint string, err error) {
	var c struct {
		RuntimeEndpoint string `json:"runtime-endpoint"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return "", fmt.Errorf("is malformed: %w", err)
	}
	return c.RuntimeEndpoint, nil
}

// kubeletConfig is the part of a KubeletConfiguration that matters here.
type kubeletConfig struct {
	endpoint string
	timeout  time.Duration // 0 when not said
	gates    map[string]bool

	staticPodPath, staticPodURL, podLogsDir string
	readOnlyPort                            int
}

// parseKubeletConfig reads a KubeletConfiguration file (YAML or JSON) or drop-in:
//
//	kind: KubeletConfiguration
//	containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
//	runtimeRequestTimeout: 2m0s
//	featureGates: {EventedPLEG: true}
//
// Other keys are ignored whatever they hold.
func parseKubeletConfig(data []byte) (kubeletConfig, error) {
	var c struct {
		ContainerRuntimeEndpoint string          `json:"containerRuntimeEndpoint"`
		RuntimeRequestTimeout    string          `json:"runtimeRequestTimeout"`
		FeatureGates             map[string]bool `json:"featureGates"`
		StaticPodPath            string          `json:"staticPodPath"`
		StaticPodURL             string          `json:"staticPodURL"`
		PodLogsDir               string          `json:"podLogsDir"`
		ReadOnlyPort             int             `json:"readOnlyPort"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		if _, words, ok := strings.Cut(err.Error(), "cannot unmarshal "); ok { // the rest of which names types of Go
			value, _, _ := strings.Cut(words, " ")
			return kubeletConfig{}, fmt.Errorf("is no KubeletConfiguration: it has a %s where none may be", value)
		}
		return kubeletConfig{}, fmt.Errorf("is malformed: %w", err)
	}
	out := kubeletConfig{
		endpoint: c.ContainerRuntimeEndpoint, gates: c.FeatureGates,
		staticPodPath: c.StaticPodPath, staticPodURL: c.StaticPodURL, podLogsDir: c.PodLogsDir, readOnlyPort: c.ReadOnlyPort,
	}
	if c.RuntimeRequestTimeout == "" {
		return out, nil
	}
	timeout, err := time.ParseDuration(c.RuntimeRequestTimeout)
	if err != nil {
		return out, fmt.Errorf("has a runtimeRequestTimeout that is no duration: %w", err)
	}
	out.timeout = timeout
	return out, nil
}

// merge lays a drop-in over the configuration. Maps merge key by key, as in the kubelet.
func (c *kubeletConfig) merge(over kubeletConfig) {
	c.endpoint = firstNonEmpty(over.endpoint, c.endpoint)
	c.staticPodPath = firstNonEmpty(over.staticPodPath, c.staticPodPath)
	c.staticPodURL = firstNonEmpty(over.staticPodURL, c.staticPodURL)
	c.podLogsDir = firstNonEmpty(over.podLogsDir, c.podLogsDir)
	if over.readOnlyPort != 0 {
		c.readOnlyPort = over.readOnlyPort
	}
	if over.timeout != 0 {
		c.timeout = over.timeout
	}
	for gate, on := range over.gates {
		c.setGate(gate, on)
	}
}

func (c *kubeletConfig) setGate(gate string, on bool) {
	if c.gates == nil {
		c.gates = make(map[string]bool)
	}
	c.gates[gate] = on
}

// gate is the value of an alpha feature gate: its own setting, else AllAlpha, else off.
func (c *kubeletConfig) gate(name string) bool {
	if on, ok := c.gates[name]; ok {
		return on
	}
	return c.gates["AllAlpha"]
}
