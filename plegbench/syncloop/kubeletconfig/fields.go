package kubeletconfig

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// An Unsupported is a setting that was made and has no effect.
type Unsupported struct {
	Field string // of KubeletConfiguration, with dots inside other fields
	Value string // as JSON
	Why   string
}

// honoured are the fields that have no flag but are honoured none the less.
func honoured() []string {
	return []string{
		"apiVersion", "kind", "podLogsDir", "nodeStatusReportFrequency", "nodeLeaseDurationSeconds", "imageMaximumGCAge",
		"enableProfilingHandler", "maxParallelImagePulls", "mergeDefaultEvictionSettings", "crashLoopBackOff.maxContainerRestartPeriod",
		"containerLogMaxWorkers", "containerLogMonitorInterval",
		"featureGates.EventedPLEG", "featureGates.PLEGOnDemandRelist",
	}
}

// A limit is a field that is not honoured.
type limit struct {
	field string
	does  string // the one value that is what happens anyway, as JSON; empty if there is none
	why   string
}

func limits() []limit {
	const (
		loopback = "the server is plain HTTP on loopback and asks nobody who they are"
		cgroups  = "cgroups of QoS classes and reservations are not made: the runtime makes those of the pods"
		numa     = "CPUs, memory and devices are not tied to NUMA nodes"
		verify   = "images and their credentials are not verified"
		shutdown = "shutdowns of the node are not watched"
		sysctls  = "the host's kernel settings are left as they are"
		logging  = "of the log only the verbosity can be set"
		reserved = "all of the node's capacity is allocatable"
		kernel   = "iptables and interfaces of the host are not touched"
	)
	return []limit{
		{"enableServer", "true", "the server is always there, on loopback"},
		{"readOnlyPort", "", loopback},
		{"tlsCertFile", "", loopback},
		{"tlsPrivateKeyFile", "", loopback},
		{"tlsCipherSuites", "", loopback},
		{"tlsCurvePreferences", "", loopback},
		{"tlsMinVersion", "", loopback},
		{"rotateCertificates", "false", "the client certificate of the kubeconfig is used as it is"},
		{"serverTLSBootstrap", "false", loopback},
		{"authentication", "", loopback},
		{"authentication.anonymous.enabled", "true", loopback},
		{"authentication.webhook.enabled", "false", loopback},
		{"authorization", "", loopback},
		{"authorization.mode", `"AlwaysAllow"`, loopback},
		{"imagePullCredentialsVerificationPolicy", `"NeverVerify"`, verify},
		{"preloadedImagesVerificationAllowlist", "", verify},
		{"enableContentionProfiling", "false", "blocking is not profiled"},
		{"healthzPort", "", "/healthz is served at port, with everything else"},
		{"healthzBindAddress", "", "/healthz is served at port, with everything else"},
		{"oomScoreAdj", "", "the process leaves its own score alone"},
		{"streamingConnectionIdleTimeout", "", "nothing is streamed over HTTP"},
		{"volumeStatsAggPeriod", "", "the use of single volumes is not measured"},
		{"kubeletCgroups", "", cgroups},
		{"systemCgroups", "", cgroups},
		{"cgroupsPerQOS", "false", cgroups},
		{"qosReserved", "", cgroups},
		{"systemReservedCgroup", "", cgroups},
		{"kubeReservedCgroup", "", cgroups},
		{"enforceNodeAllocatable", `["none"]`, cgroups},
		{"podPidsLimit", "-1", cgroups},
		{"cpuManagerPolicy", `"none"`, numa},
		{"cpuManagerPolicyOptions", "", numa},
		{"cpuManagerReconcilePeriod", "", numa},
		{"memoryManagerPolicy", `"None"`, numa},
		{"topologyManagerPolicy", `"none"`, numa},
		{"topologyManagerScope", "", numa},
		{"topologyManagerPolicyOptions", "", numa},
		{"reservedSystemCPUs", "", numa},
		{"reservedMemory", "", numa},
		{"singleProcessOOMKill", "true", "the runtime decides what an out-of-memory kill takes along"},
		{"hairpinMode", `"none"`, kernel},
		{"makeIPTablesUtilChains", "false", kernel},
		{"iptablesMasqueradeBit", "", kernel},
		{"iptablesDropBit", "", kernel},
		{"podCIDR", "", "the runtime's network plugin chooses addresses"},
		{"runOnce", "false", "it runs until it is ended"},
		{"cpuCFSQuota", "true", "limits of CPU are always enforced"},
		{"cpuCFSQuotaPeriod", `"100ms"`, "the period is 100 ms"},
		{"maxOpenFiles", "", "the process leaves its own limits alone"},
		{"podsPerCore", "", "only maxPods limits the number of pods"},
		{"enableControllerAttachDetach", "true", "no volume is attached"},
		{"volumePluginDir", "", "there are no volume plugins"},
		{"protectKernelDefaults", "false", sysctls},
		{"allowedUnsafeSysctls", "", "sysctls of pods are passed on without a check"},
		{"defaultPodSysctls", "", "pods get only the sysctls that they ask for"},
		{"failSwapOn", "false", "swap is not looked at"},
		{"memorySwap", "", "swap is not looked at"},
		{"configMapAndSecretChangeDetectionStrategy", `"Get"`, "objects are fetched again at each refresh of a volume"},
		{"systemReserved", "", reserved},
		{"kubeReserved", "", reserved},
		{"showHiddenMetricsForVersion", "", "no metric is hidden"},
		{"providerID", "", "no cloud is known"},
		{"kernelMemcgNotification", "false", "memory is looked at every ten seconds, not on notice of the kernel"},
		{"logging", "", logging},
		{"enableSystemLogHandler", "false", "logs of the host are not served"},
		{"enableSystemLogQuery", "false", "logs of the host are not served"},
		{"shutdownGracePeriod", "", shutdown},
		{"shutdownGracePeriodCriticalPods", "", shutdown},
		{"shutdownGracePeriodByPodPriority", "", shutdown},
		{"enableDebugFlagsHandler", "true", "/debug/flags/v is always served"},
		{"memoryThrottlingFactor", "", "memory is not throttled"},
		{"memoryReservationPolicy", `"None"`, "memory is not throttled"},
		{"tracing", "", "nothing is traced"},
		{"localStorageCapacityIsolation", "false", "what a pod may store is not limited one by one"},
		{"failCgroupV1", "false", "either version of cgroups will do"},
		{"userNamespaces", "", "pods have no user namespaces of their own"},
		{"featureGates", "", "this feature is not here to be turned on or off"},
		{"crashLoopBackOff", "", "only the longest pause can be set"},
	}
}

// unsupported returns the settings of a document that have no effect, in the order of their names.
func unsupported(doc map[string]any) []Unsupported {
	rules := map[string]limit{}
	for _, l := range limits() {
		rules[l.field] = l
	}
	fine := map[string]bool{}
	for _, field := range honoured() {
		fine[field] = true
	}
	for _, f := range Flags() {
		fine[f.Field] = f.Field != "featureGates"
	}
	var out []Unsupported
	var walk func(path string, value any, outer limit)
	walk = func(path string, value any, outer limit) {
		if fine[path] {
			return
		}
		rule, own := rules[path]
		if !own {
			rule = limit{path, "", outer.why}
		}
		if inner, ok := value.(map[string]any); ok && splits(path) {
			for _, name := range slices.Sorted(maps.Keys(inner)) {
				walk(path+"."+name, inner[name], rule)
			}
			return
		}
		text, err := json.Marshal(value)
		if err == nil && !unset(string(text)) && string(text) != rule.does {
			out = append(out, Unsupported{path, string(text), rule.why})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		walk(name, doc[name], limit{})
	}
	return out
}

// splits reports a field whose parts are looked at one by one.
func splits(path string) bool {
	outer, _, _ := strings.Cut(path, ".")
	return slices.Contains([]string{"authentication", "authorization", "logging", "featureGates", "crashLoopBackOff"}, outer)
}

// unset reports a value that says no more than its absence does: files that tools write are full of them.
func unset(text string) bool {
	return slices.Contains([]string{"null", `""`, "0", `"0s"`, `"0"`, "{}", "[]"}, text)
}
