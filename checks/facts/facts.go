// Package facts holds what was collected about a node (Input) and all that follows from it (Facts), worked out once
// by New from small pure functions, one file for each area. It decides nothing: packages causes and judge do.
package facts

import (
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// Input is what was collected: from the runtime, the host, the kubelet and the logs.
type Input struct {
	Now         time.Time
	Runtime     checks.Runtime         // which endpoint, and what runs there
	Kubelet     *crictl.Kubelet        // nil when no kubelet runs on this host, or none may be seen
	Measurement *plegbench.Measurement // nil when no endpoint could be found or opened
	Summary     *plegbench.Summary     // nil with Measurement
	Processes   []host.Process         // runtime daemons, shims, OCI runtimes and CNI plugins on this host
	HostMissing string                 // why Processes could not be read; empty when they were
	// who listens on the socket, where that is none of Processes; nil when it is one, or not known
	Peer      *host.Process
	NotTaken  []crictl.Tried // processes that call themselves kubelet and were not taken for the node's
	NoSystemd bool           // something else than systemd runs this host
	// Journal is what the node's own logs say of the last minutes (Limits.JournalWindow). It supports, contradicts,
	// dates and names; what the runtime answers now decides. Nil when the logs were not read.
	Journal        *journal.Report
	JournalProblem string // why the logs could not be read; empty when they were, or when nobody asked for them
	// Node is what was seen of the host and of the kubelet besides; nil when only the runtime was asked.
	Node   *Node
	Limits checks.Limits
}

// Facts are what was collected and all that follows from it, each worked out once by New.
type Facts struct {
	Input
	RPC map[string]RPC // the calls by RPC
	// what was seen of the node; empty where nobody looked, and where the runtime is kdiag's own
	Seen     *Node
	Target   Target
	Calls    Calls
	Sweep    Sweep
	Lists    Lists
	Pattern  Pattern
	Log      Log
	Agent    Agent
	Shims    Shims
	Tasks    Tasks
	Disk     Disk
	Pressure Pressure
	Usage    Usage
	Systemd  Systemd
}

// New works out the facts. It is pure, and keeps what in points to.
func New(in *Input) *Facts {
	if in == nil {
		in = &Input{}
	}
	f := &Facts{Input: *in, RPC: map[string]RPC{}}
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers, RPCImages, RPCImageFs} {
		f.RPC[name] = callsOf(f, name)
	}
	deriveRuntime(f)
	deriveNode(f)
	return f
}

// deriveRuntime works out what follows from the answers of the runtime and from the logs. A line may use those before
// it.
func deriveRuntime(f *Facts) {
	f.Agent.Runs = kubeletRuns(f)
	f.Agent.NotSeen = noKubeletSeen(f)
	f.Limits.CNIPluginTooLong = cniTooLong(f)
	f.Limits.Node = nodeLimits(f)
	f.Limits.RPCTimeout = rpcTimeout(f)
	f.Target.Name = runtimeName(f)
	f.Target.NobodyServes = nobodyServes(f)
	f.Target.OtherProcess = otherProcess(f)
	f.Target.RestartsKubelet = restartsKubelet(f)
	f.Target.Simulated = simulated(f)
	f.Target.OtherEndpoint = otherEndpoint(f)
	f.Target.SocketPath = socketPath(f)
	f.Target.Unit = unit(f)
	f.Target.Daemon = daemon(f)
	f.Target.WrongSocket = wrongSocket(f)
	f.Seen = seen(f)
	f.Target.NoSystemd = lacksSystemd(f)
	f.Target.RuntimeUnit = runtimeUnitSeen(f)
	f.Calls.AnyList = anyList(f)
	f.Calls.BothLists = bothLists(f)
	f.Calls.Connected = connected(f)
	f.Calls.HungLists = hungLists(f)
	f.Calls.Impatient = impatient(f)
	f.Calls.KubeletTimeout = requestTimeout(f)
	f.Calls.ListMedian, f.Calls.ListTimed = listMedian(f)
	f.Calls.NotCRI, f.Calls.IsNotCRI = unimplemented(f)
	f.Calls.Threshold = threshold(f)
	f.Sweep.Made = inspections(f)
	f.Sweep.Answered = statusesAnswered(f)
	f.Sweep.Failed = failedInspections(f)
	f.Sweep.Gone = goneInspections(f)
	f.Sweep.Hung = hungInspections(f)
	f.Sweep.Refused = refusedInspections(f)
	f.Sweep.Running = seenRunning(f)
	f.Sweep.Summary = sweepSummary(f)
	f.Sweep.Median, f.Sweep.Timed = statusMedian(f)
	f.Calls.Gone, f.Calls.WentAway = wentAway(f)
	f.Lists.Census = takeCensus(f)
	f.Lists.MessageLimit = messageLimit(f)
	f.Lists.Objects = objects(f)
	f.Lists.Size, f.Lists.SizeKnown = listSize(f)
	f.Lists.LargeEntries = largeEntries(f)
	f.Lists.Streamed = kubeletStreams(f)
	f.Pattern.AllSlow = allSlow(f)
	f.Pattern.Crawls = crawls(f)
	f.Pattern.ImagesHold = imagesHold(f)
	f.Pattern.OnlyImageList = onlyImageList(f)
	f.Pattern.SlowLists = slowLists(f)
	f.Pattern.SlowStatuses = slowStatuses(f)
	f.Pattern.Stall, f.Pattern.Stalled = silence(f)
	f.Pattern.Stalls = stalls(f)
	f.Pattern.StoppedForGood = stoppedForGood(f)
	f.Pattern.Hang = wholeHang(f)
	f.Pattern.Slow = isSlow(f)
	f.Pattern.Well = runtimeWell(f)
}

// deriveNode works out what follows from the host, the kubelet and the logs.
func deriveNode(f *Facts) {
	f.Log.At = journalAt(f)
	f.Log.From = journalFrom(f)
	f.Log.Read = logRead(f)
	f.Log.Incidents = incidents(f)
	f.Log.HungTasks = hungTasks(f)
	f.Log.OOMGlobal = oomGlobal(f)
	f.Log.OOMKills = oomKills(f)
	f.Log.OOMVictims = oomVictims(f)
	f.Log.NodeVictims = nodeVictims(f)
	f.Log.OOMBeforePLEG = oomBeforePLEG(f)
	f.Log.PLEGNow = plegNow(f)
	f.Log.RetryPause = retryPause(f)
	f.Log.Named = namedByKubelet(f)
	f.Log.SameRuntime = sameRuntime(f)
	f.Log.Watchdog = watchdogEnds(f)
	f.Log.Window = journalWindow(f)
	f.Log.Restarts = kubeletRestarts(f)
	f.Agent.HealthRefused = healthRefused(f)
	f.Agent.IsNode = isNode(f)
	f.Agent.LeaseFresh = leaseFresh(f)
	f.Agent.LeaseStale = leaseStale(f)
	f.Agent.LoopStands = loopStands(f)
	f.Agent.NetworkReady = networkReady(f)
	f.Agent.NeverCameUp = neverCameUp(f)
	f.Agent.PLEGAge, f.Agent.PLEGKnown = plegAge(f)
	f.Agent.ServerWaits = serverWaits(f)
	f.Agent.Stopped = stoppedKubelet(f)
	f.Agent.Unit = kubeletUnitSeen(f)
	f.Agent.Gone = kubeletGone(f)
	f.Target.KubeletUnit = kubeletUnit(f)
	f.Log.APIOutage, f.Log.APIOut = apiOutage(f)
	f.Log.KubeletElsewhere = kubeletElsewhere(f)
	f.Agent.APIQuiet = apiQuiet(f)
	f.Shims.Comparable = listsCompare(f)
	f.Shims.EveryStopped = everyStoppedShim(f)
	f.Shims.Gap, f.Shims.Compared = shimGap(f)
	f.Shims.Culprits = gapCulprits(f)
	f.Shims.Stopped = stoppedShims(f)
	f.Tasks.Frozen = frozenCgroups(f)
	f.Tasks.Stuck = stuckTasks(f)
	f.Disk.DeadMounts = deadMounts(f)
	f.Disk.ReadOnly = readOnly(f)
	f.Disk.Short = shortOfSpace(f)
	f.Disk.ShortInodes = shortOfInodes(f)
	f.Disk.SilentMounts = silentMounts(f)
	f.Disk.Slow = slowDisks(f)
	f.Disk.Writers = topWriters(f)
	f.Disk.Writes = latencies(f)
	f.Disk.Failing = failing(f)
	f.Pressure.Crowded = crowded(f)
	f.Pressure.MemoryLow = memoryLow(f)
	f.Pressure.MemorySeverity, f.Pressure.MemoryShort = memoryRank(f)
	f.Pressure.Throttled = throttled(f)
	f.Usage.CgroupIDs = cgroupIDs(f)
	f.Usage.ClockJump, f.Usage.ClockJumped = jumped(f)
	f.Usage.Files = fileHoarders(f)
	f.Usage.InotifyInstances, f.Usage.InotifyWatches = inotifyOfRoot(f)
	f.Usage.PIDs = pidLimits(f)
	f.Systemd.BusSilent = busSilent(f)
	f.Systemd.Driver = systemdDriver(f)
	f.Systemd.JobsWait = jobsWait(f)
	f.Systemd.Silent = systemdSilent(f)
	f.Systemd.Slow = systemdSlow(f)
	f.Systemd.UnitsLeak = unitsLeak(f)
}
