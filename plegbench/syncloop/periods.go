package syncloop

import (
	"time"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// Periods are the kubelet's times. Each constant's place upstream is pkg/kubelet/kubelet.go unless it says otherwise.
type Periods struct {
	Relist           time.Duration // between relists, counted from the end of the last
	RelistThreshold  time.Duration // PLEG is unhealthy beyond
	EventedRelist    time.Duration // instead of Relist while the runtime sends events
	EventedThreshold time.Duration
	Sync             time.Duration // tick of the loop that looks for pods whose time has come
	Housekeeping     time.Duration
	SkipFirst        time.Duration // pause of the loop while the runtime is in trouble, doubling up to SkipMost
	SkipMost         time.Duration
	RuntimeStatus    time.Duration // between the end of a CRI Status and the next
	RuntimeDown      time.Duration // without a good Status for so long the runtime is down
	Request          time.Duration // deadline of a CRI call: runtimeRequestTimeout
	Resync           time.Duration // of a pod that is well: syncFrequency
	BackOff          time.Duration // of a pod whose sync failed
	CrashFirst       time.Duration // CrashLoopBackOff, doubling up to CrashMost
	CrashMost        time.Duration
	CrashReset       time.Duration // of a container that ended so long after its restart was decided, CrashLoopBackOff begins anew
	PullFirst        time.Duration // ImagePullBackOff, doubling up to PullMost
	PullMost         time.Duration
	FileCheck        time.Duration
	HTTPCheck        time.Duration
	NodeStatus       time.Duration
	NodeReport       time.Duration
	StatusManager    time.Duration // pkg/kubelet/status/status_manager.go
	ContainerGC      time.Duration
	ImageGC          time.Duration
	Eviction         time.Duration
	LogMonitor       time.Duration // containerLogMonitorInterval
	LoopStuck        time.Duration // healthz fails when the loop has not turned for so long, or for two Resync
}

// DefaultPeriods are those of a kubelet with its default configuration.
func DefaultPeriods() Periods {
	return Periods{
		Relist: time.Second, RelistThreshold: 3 * time.Minute,
		EventedRelist: 5 * time.Minute, EventedThreshold: 10 * time.Minute,
		Sync: time.Second, Housekeeping: 2 * time.Second,
		SkipFirst: 100 * time.Millisecond, SkipMost: 5 * time.Second,
		RuntimeStatus: 5 * time.Second, RuntimeDown: 30 * time.Second,
		Request: 2 * time.Minute, Resync: time.Minute, BackOff: 10 * time.Second,
		CrashFirst: 10 * time.Second, CrashMost: 5 * time.Minute, CrashReset: 10 * time.Minute,
		PullFirst: 10 * time.Second, PullMost: 5 * time.Minute,
		FileCheck: 20 * time.Second, HTTPCheck: 20 * time.Second,
		NodeStatus: 10 * time.Second, NodeReport: 5 * time.Minute, StatusManager: 10 * time.Second,
		ContainerGC: time.Minute, ImageGC: 5 * time.Minute, Eviction: 10 * time.Second,
		LogMonitor: 10 * time.Second, LoopStuck: 5 * time.Minute,
	}
}

// leastPeriod keeps a shortened period from turning a loop into a spin.
const leastPeriod = 5 * time.Millisecond

// Faster returns the periods shortened by a factor: with 60, three minutes become three seconds. None gets below 5 ms.
func (p Periods) Faster(factor float64) Periods {
	for _, d := range []*time.Duration{
		&p.Relist, &p.RelistThreshold, &p.EventedRelist, &p.EventedThreshold, &p.Sync, &p.Housekeeping, &p.SkipFirst, &p.SkipMost,
		&p.RuntimeStatus, &p.RuntimeDown, &p.Request, &p.Resync, &p.BackOff, &p.CrashFirst, &p.CrashMost, &p.CrashReset, &p.PullFirst, &p.PullMost,
		&p.FileCheck, &p.HTTPCheck, &p.NodeStatus, &p.NodeReport, &p.StatusManager, &p.ContainerGC, &p.ImageGC, &p.Eviction, &p.LogMonitor, &p.LoopStuck,
	} {
		*d = max(leastPeriod, time.Duration(float64(*d)/factor))
	}
	return p
}

// PeriodsFor are the periods of a kubelet with this configuration.
func PeriodsFor(k *kubeletconfig.Config) Periods {
	p := DefaultPeriods()
	p.Request, p.Resync = k.RuntimeRequestTimeout.Duration, k.SyncFrequency.Duration
	p.FileCheck, p.HTTPCheck = k.FileCheckFrequency.Duration, k.HTTPCheckFrequency.Duration
	p.NodeStatus, p.NodeReport = k.NodeStatusUpdateFrequency.Duration, k.NodeStatusReportFrequency.Duration
	p.LogMonitor = k.ContainerLogMonitorInterval.Duration
	p.CrashMost = k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	p.CrashFirst = min(p.CrashFirst, p.CrashMost)
	return p
}
