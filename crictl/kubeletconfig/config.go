package kubeletconfig

import (
	"cmp"
	"encoding/json"
	"time"
)

// A Config is the part of a KubeletConfiguration that kdiag uses. Names and meanings are upstream's
// (staging/src/k8s.io/kubelet/config/v1beta1). The real type is not used because it links the logging, tracing and
// metrics packages of k8s.io/component-base into every command.
type Config struct {
	EnableServer            bool                `json:"enableServer"`
	Address                 string              `json:"address"`
	Port                    int32               `json:"port"`
	ReadOnlyPort            int32               `json:"readOnlyPort"`
	HealthzBindAddress      string              `json:"healthzBindAddress"`
	HealthzPort             int32               `json:"healthzPort"` // 0: none
	TLSCertFile             string              `json:"tlsCertFile"`
	TLSPrivateKeyFile       string              `json:"tlsPrivateKeyFile"`
	RotateCertificates      bool                `json:"rotateCertificates"`
	ServerTLSBootstrap      bool                `json:"serverTLSBootstrap"`
	EnableDebuggingHandlers bool                `json:"enableDebuggingHandlers"`
	EnableProfilingHandler  bool                `json:"enableProfilingHandler"`
	StaticPodPath           string              `json:"staticPodPath"`
	StaticPodURL            string              `json:"staticPodURL"`
	StaticPodURLHeader      map[string][]string `json:"staticPodURLHeader"`
	PodLogsDir              string              `json:"podLogsDir"`

	Authentication struct {
		X509 struct {
			ClientCAFile string `json:"clientCAFile,omitempty"`
		} `json:"x509"`
		Webhook struct {
			Enabled  bool     `json:"enabled"`
			CacheTTL Duration `json:"cacheTTL"`
		} `json:"webhook"`
		Anonymous struct {
			Enabled bool `json:"enabled"`
		} `json:"anonymous"`
	} `json:"authentication"`
	Authorization struct {
		Mode    string `json:"mode"`
		Webhook struct {
			CacheAuthorizedTTL   Duration `json:"cacheAuthorizedTTL"`
			CacheUnauthorizedTTL Duration `json:"cacheUnauthorizedTTL"`
		} `json:"webhook"`
	} `json:"authorization"`

	SyncFrequency             Duration `json:"syncFrequency"`
	FileCheckFrequency        Duration `json:"fileCheckFrequency"`
	HTTPCheckFrequency        Duration `json:"httpCheckFrequency"`
	NodeStatusUpdateFrequency Duration `json:"nodeStatusUpdateFrequency"`
	NodeStatusReportFrequency Duration `json:"nodeStatusReportFrequency"`
	NodeLeaseDurationSeconds  int32    `json:"nodeLeaseDurationSeconds"`
	RuntimeRequestTimeout     Duration `json:"runtimeRequestTimeout"`
	CrashLoopBackOff          struct {
		MaxContainerRestartPeriod Duration `json:"maxContainerRestartPeriod"`
	} `json:"crashLoopBackOff"`

	ContainerRuntimeEndpoint string   `json:"containerRuntimeEndpoint"`
	ImageServiceEndpoint     string   `json:"imageServiceEndpoint"` // empty: the runtime's endpoint
	CgroupDriver             string   `json:"cgroupDriver"`
	CgroupRoot               string   `json:"cgroupRoot"`
	MaxPods                  int32    `json:"maxPods"`
	PodPidsLimit             int64    `json:"podPidsLimit"` // -1: none
	ClusterDomain            string   `json:"clusterDomain"`
	ClusterDNS               []string `json:"clusterDNS"`
	ResolverConfig           string   `json:"resolvConf"`
	SeccompDefault           bool     `json:"seccompDefault"`
	RegisterNode             bool     `json:"registerNode"`
	RegisterWithTaints       []Taint  `json:"registerWithTaints"`
	ContentType              string   `json:"contentType"`
	KubeAPIQPS               int32    `json:"kubeAPIQPS"`
	KubeAPIBurst             int32    `json:"kubeAPIBurst"`
	EventRecordQPS           int32    `json:"eventRecordQPS"`
	EventBurst               int32    `json:"eventBurst"`

	RegistryPullQPS             int32    `json:"registryPullQPS"` // 0: no limit
	RegistryBurst               int32    `json:"registryBurst"`
	SerializeImagePulls         bool     `json:"serializeImagePulls"`
	MaxParallelImagePulls       int32    `json:"maxParallelImagePulls"` // 0: no limit
	NodeStatusMaxImages         int32    `json:"nodeStatusMaxImages"`   // -1: all
	ImageMinimumGCAge           Duration `json:"imageMinimumGCAge"`
	ImageMaximumGCAge           Duration `json:"imageMaximumGCAge"` // 0: any
	ImageGCHighThresholdPercent int32    `json:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent  int32    `json:"imageGCLowThresholdPercent"`
	ContainerLogMaxSize         string   `json:"containerLogMaxSize"`
	VolumeStatsAggPeriod        Duration `json:"volumeStatsAggPeriod"` // below 0: never

	EvictionHard                     map[string]string `json:"evictionHard"`
	EvictionSoft                     map[string]string `json:"evictionSoft"`
	EvictionSoftGracePeriod          map[string]string `json:"evictionSoftGracePeriod"`
	EvictionMinimumReclaim           map[string]string `json:"evictionMinimumReclaim"`
	EvictionPressureTransitionPeriod Duration          `json:"evictionPressureTransitionPeriod"`
	EvictionMaxPodGracePeriod        int32             `json:"evictionMaxPodGracePeriod"` // in seconds
	MergeDefaultEvictionSettings     bool              `json:"mergeDefaultEvictionSettings"`

	FailSwapOn     bool              `json:"failSwapOn"`
	FailCgroupV1   bool              `json:"failCgroupV1"`
	KubeReserved   map[string]string `json:"kubeReserved"`
	SystemReserved map[string]string `json:"systemReserved"`

	FeatureGates map[string]bool `json:"featureGates"`
	Logging      struct {
		Verbosity uint32 `json:"verbosity"`
	} `json:"logging"`
}

// A Taint is one that a node registers with.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// A Duration is a time.Duration that is written as "1m30s" in JSON.
type Duration struct{ time.Duration }

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads text such as "1m30s".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	if err == nil {
		d.Duration = parsed
	}
	return err
}

// Gate reports whether an alpha feature is on: by its own gate, else by AllAlpha.
func (c *Config) Gate(name string) bool {
	if on, ok := c.FeatureGates[name]; ok {
		return on
	}
	return c.FeatureGates["AllAlpha"]
}

// Defaults returns the settings of a kubelet without file and flags (pkg/kubelet/apis/config/v1beta1/defaults.go and
// pkg/kubelet/eviction/defaults_linux.go upstream).
func Defaults() Config {
	c := Config{
		EnableServer: true, Address: "0.0.0.0", Port: 10250, HealthzBindAddress: "127.0.0.1", HealthzPort: 10248,
		EnableDebuggingHandlers: true, EnableProfilingHandler: true, PodLogsDir: "/var/log/pods",
		SyncFrequency:             Duration{time.Minute},
		FileCheckFrequency:        Duration{20 * time.Second},
		HTTPCheckFrequency:        Duration{20 * time.Second},
		NodeStatusUpdateFrequency: Duration{10 * time.Second},
		NodeStatusReportFrequency: Duration{5 * time.Minute},
		NodeLeaseDurationSeconds:  40,
		RuntimeRequestTimeout:     Duration{2 * time.Minute},

		ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock", CgroupDriver: "cgroupfs",
		MaxPods: 110, PodPidsLimit: -1, ResolverConfig: "/etc/resolv.conf", RegisterNode: true,
		ContentType: "application/vnd.kubernetes.protobuf", KubeAPIQPS: 50, KubeAPIBurst: 100, EventRecordQPS: 50,
		EventBurst:      100,
		RegistryPullQPS: 5, RegistryBurst: 10, SerializeImagePulls: true, NodeStatusMaxImages: 50,
		ImageMinimumGCAge: Duration{2 * time.Minute}, ImageGCHighThresholdPercent: 85, ImageGCLowThresholdPercent: 80,
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%",
		},
		EvictionPressureTransitionPeriod: Duration{5 * time.Minute},
		ContainerLogMaxSize:              "10Mi",
		VolumeStatsAggPeriod:             Duration{time.Minute},
		FailSwapOn:                       true,
		FailCgroupV1:                     true,
	}
	c.CrashLoopBackOff.MaxContainerRestartPeriod = Duration{5 * time.Minute}
	c.Authentication.Webhook.Enabled, c.Authorization.Mode = true, "Webhook"
	c.setTTLs()
	return c
}

// setTTLs sets the defaults of times that tools write as 0s beside other settings.
func (c *Config) setTTLs() {
	for field, ttl := range map[*Duration]time.Duration{
		&c.Authentication.Webhook.CacheTTL:            2 * time.Minute,
		&c.Authorization.Webhook.CacheAuthorizedTTL:   5 * time.Minute,
		&c.Authorization.Webhook.CacheUnauthorizedTTL: 30 * time.Second,
	} {
		field.Duration = cmp.Or(field.Duration, ttl)
	}
}

// zeroCounts lists the fields in which 0, false or an empty value differs from no value: upstream has pointers or
// maps there, or the default is another without --config. Anywhere else the kubelet takes its default for it.
func zeroCounts() []string {
	return []string{
		"authentication", "enableServer", "healthzPort", "enableDebuggingHandlers", "enableProfilingHandler", "podPidsLimit",
		"resolvConf",
		"registerNode", "kubeAPIQPS", "eventRecordQPS", "registryPullQPS", "serializeImagePulls", "nodeStatusMaxImages",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "evictionHard",
		"featureGates", "failSwapOn", "failCgroupV1", "readOnlyPort",
	}
}
