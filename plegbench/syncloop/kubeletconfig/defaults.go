package kubeletconfig

import (
	"cmp"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// setDefaults fills in the kubelet's defaults (pkg/kubelet/apis/config/v1beta1/defaults.go upstream) of what is honoured.
// Two are our own: the server is on loopback, and its port, with a real kubelet on 10250 beside it, stays 0 unless set.
func setDefaults(c *kubeletconfigv1beta1.KubeletConfiguration) {
	c.Address = cmp.Or(c.Address, "127.0.0.1")
	c.PodLogsDir = cmp.Or(c.PodLogsDir, "/var/log/pods")
	c.ContainerRuntimeEndpoint = cmp.Or(c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	c.CgroupDriver = cmp.Or(c.CgroupDriver, "cgroupfs")
	c.ContentType = cmp.Or(c.ContentType, "application/vnd.kubernetes.protobuf")
	c.ResolverConfig = cmp.Or(c.ResolverConfig, new("/etc/resolv.conf"))

	if c.NodeStatusReportFrequency.Duration == 0 {
		// Who asks for frequent updates wants them reported as often.
		c.NodeStatusReportFrequency.Duration = cmp.Or(c.NodeStatusUpdateFrequency.Duration, 5*time.Minute)
	}
	c.ContainerLogMonitorInterval = cmp.Or(c.ContainerLogMonitorInterval, &metav1.Duration{})
	c.CrashLoopBackOff.MaxContainerRestartPeriod = cmp.Or(c.CrashLoopBackOff.MaxContainerRestartPeriod, &metav1.Duration{Duration: 5 * time.Minute})
	defaults := map[string]time.Duration{
		"syncFrequency": time.Minute, "fileCheckFrequency": 20 * time.Second, "httpCheckFrequency": 20 * time.Second,
		"nodeStatusUpdateFrequency": 10 * time.Second, "imageMinimumGCAge": 2 * time.Minute,
		"runtimeRequestTimeout": 2 * time.Minute, "evictionPressureTransitionPeriod": 5 * time.Minute,
		"containerLogMonitorInterval": 10 * time.Second,
	}
	for field, d := range durations(c) {
		d.Duration = cmp.Or(d.Duration, defaults[field])
	}

	c.ContainerLogMaxSize = cmp.Or(c.ContainerLogMaxSize, "10Mi")
	c.ContainerLogMaxFiles = cmp.Or(c.ContainerLogMaxFiles, new(int32(5)))
	c.ContainerLogMaxWorkers = cmp.Or(c.ContainerLogMaxWorkers, new(int32(1)))

	c.NodeLeaseDurationSeconds = cmp.Or(c.NodeLeaseDurationSeconds, 40)
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.RegistryBurst = cmp.Or(c.RegistryBurst, 10)
	c.EventBurst = cmp.Or(c.EventBurst, 100)
	c.KubeAPIBurst = cmp.Or(c.KubeAPIBurst, 100)
	c.RegistryPullQPS = cmp.Or(c.RegistryPullQPS, new(int32(5)))
	c.EventRecordQPS = cmp.Or(c.EventRecordQPS, new(int32(50)))
	c.KubeAPIQPS = cmp.Or(c.KubeAPIQPS, new(int32(50)))
	c.NodeStatusMaxImages = cmp.Or(c.NodeStatusMaxImages, new(int32(50)))
	c.ImageGCHighThresholdPercent = cmp.Or(c.ImageGCHighThresholdPercent, new(int32(85)))
	c.ImageGCLowThresholdPercent = cmp.Or(c.ImageGCLowThresholdPercent, new(int32(80)))
	c.SerializeImagePulls = cmp.Or(c.SerializeImagePulls, new(c.MaxParallelImagePulls == nil || *c.MaxParallelImagePulls < 2))
	c.RegisterNode = cmp.Or(c.RegisterNode, new(true))
	c.SeccompDefault = cmp.Or(c.SeccompDefault, new(false))
	c.MergeDefaultEvictionSettings = cmp.Or(c.MergeDefaultEvictionSettings, new(false))

	hard := map[string]string{ // pkg/kubelet/eviction/defaults_linux.go upstream
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
	}
	if c.EvictionHard == nil || *c.MergeDefaultEvictionSettings {
		maps.Copy(hard, c.EvictionHard)
		c.EvictionHard = hard
	}
}

// durations are the durations that are honoured and may not be 0, by their names in the file.
func durations(c *kubeletconfigv1beta1.KubeletConfiguration) map[string]*metav1.Duration {
	return map[string]*metav1.Duration{
		"syncFrequency": &c.SyncFrequency, "fileCheckFrequency": &c.FileCheckFrequency, "httpCheckFrequency": &c.HTTPCheckFrequency,
		"nodeStatusUpdateFrequency": &c.NodeStatusUpdateFrequency, "nodeStatusReportFrequency": &c.NodeStatusReportFrequency,
		"imageMinimumGCAge": &c.ImageMinimumGCAge, "runtimeRequestTimeout": &c.RuntimeRequestTimeout,
		"evictionPressureTransitionPeriod":           &c.EvictionPressureTransitionPeriod,
		"containerLogMonitorInterval":                c.ContainerLogMonitorInterval,
		"crashLoopBackOff.maxContainerRestartPeriod": c.CrashLoopBackOff.MaxContainerRestartPeriod,
	}
}
