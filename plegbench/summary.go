package plegbench

// A Summary is the arithmetic over one Measurement. It is the "relist" object of kdiag's JSON reports: seconds are
// floating-point numbers, sizes are bytes, and what could not be measured is absent.
type Summary struct {
	ThresholdSeconds float64       `json:"thresholdSeconds"` // 180, or 600 with evented PLEG until 1.36
	List             *ListSummary  `json:"list,omitempty"`   // absent when no list was tried
	Sweep            *SweepSummary `json:"sweep,omitempty"`  // absent when no status was asked

	// ProjectedSeconds is what one relist of the kubelet would take now: both lists, and the serial inspection of the
	// pods that changed while we looked and of those whose status hangs or fails, which stay marked for the next
	// relist. A call that hung costs RequestTimeoutSeconds and ends the inspection of its pod; an object that was not
	// asked about costs the mean of those of its kind that answered. A list that hangs costs RequestTimeoutSeconds and
	// ends the relist. Absent when the lists failed otherwise, for then no relist gets anywhere, however fast.
	ProjectedSeconds *float64 `json:"projectedSeconds,omitempty"`
	// ChurnSeconds is the same with a tenth of the pods, and at least ten, changing at once, as in a rollout: that many
	// average pods, and those whose status hangs or fails. Absent when the lists do not answer, or no status of a kind
	// was answered.
	ChurnSeconds *float64 `json:"churnSeconds,omitempty"`
	// ColdSeconds is the same with every pod inspected, as after a restart of the kubelet. Absent when the lists do not
	// answer, or no status of a kind was answered.
	ColdSeconds *float64 `json:"coldSeconds,omitempty"`
	// ProjectedRange and ColdRange are where ProjectedSeconds and ColdSeconds lie in at least 95 of 100 cases, in
	// seconds: those asked were chosen at random, the others are estimated from them. They are one point when all were
	// asked, and absent when fewer than six answered. That none of the others hangs is assumed.
	ProjectedRange *Range `json:"projectedRange,omitempty"`
	ColdRange      *Range `json:"coldRange,omitempty"`
	// ProjectedAgeSeconds is the age that "pleg was last seen active" would reach: a relist's start is its time stamp,
	// and the next one counts only once its lists have answered. Absent when the lists do not answer: the age then
	// grows without end.
	ProjectedAgeSeconds *float64 `json:"projectedAgeSeconds,omitempty"`
	// OlderProjectedSeconds is ProjectedSeconds for a kubelet up to 1.35, which lists the pod's sandboxes and
	// containers again before it asks for their status, and inspects a pod whose inspection failed in the relist before
	// twice. The two narrowed lists are counted as full ones, which is the most that they cost.
	OlderProjectedSeconds *float64 `json:"olderProjectedSeconds,omitempty"`
	// RequestTimeoutSeconds is the kubelet's deadline for one call, at which a hung call is counted.
	RequestTimeoutSeconds float64 `json:"requestTimeoutSeconds"`

	ResponseRPC        string `json:"responseRPC,omitempty"`   // the list whose answer is the larger
	ResponseBytes      *int   `json:"responseBytes,omitempty"` // its size as one unary message
	ResponseLimitBytes int    `json:"responseLimitBytes"`      // what the kubelet's client receives
	// ResponseTruncated means that the size is a lower bound: part of a list, or the list of containers, is missing.
	ResponseTruncated bool             `json:"responseTruncated,omitempty"`
	BytesPerContainer *float64         `json:"bytesPerContainer,omitempty"` // mean size of a container's entry
	ContainersAtLimit *int             `json:"containersAtLimit,omitempty"` // how many of them fill the limit
	Sandboxes         *SandboxCounts   `json:"sandboxes,omitempty"`         // by state
	Containers        *ContainerCounts `json:"containers,omitempty"`        // by state
	// ExitedBeyondNewest counts the exited containers that are not the newest exited one of their pod and name.
	ExitedBeyondNewest *int `json:"exitedBeyondNewest,omitempty"`
}

// A Range is an interval of seconds.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// A ListSummary summarises timed relists: both lists together.
type ListSummary struct {
	Samples int `json:"samples"`
	// P50Seconds and the other quantiles are by nearest rank over answered samples; absent when none was answered.
	P50Seconds *float64 `json:"p50Seconds,omitempty"`
	P90Seconds *float64 `json:"p90Seconds,omitempty"`
	P99Seconds *float64 `json:"p99Seconds,omitempty"`
	MaxSeconds *float64 `json:"maxSeconds,omitempty"`
	Errors     int      `json:"errors"` // samples of which a list failed or hung
}

// A SweepSummary summarises the status calls.
type SweepSummary struct {
	// asked, answered or hung; calls that the end of the command cut short are left out
	Inspected      int      `json:"inspected"`
	Total          int      `json:"total"`
	Hung           int      `json:"hung"`
	Failed         int      `json:"failed,omitempty"`     // answered with an error other than NotFound
	P50Seconds     *float64 `json:"p50Seconds,omitempty"` // quantiles over answered calls
	P99Seconds     *float64 `json:"p99Seconds,omitempty"`
	SlowestSeconds *float64 `json:"slowestSeconds,omitempty"` // the slowest answered call
	SlowestID      string   `json:"slowestID,omitempty"`
	Reach          string   `json:"reach,omitempty"` // how far the sweep went, and why it stopped
	Histogram      []Bucket `json:"histogram,omitempty"`
}

// A Bucket counts calls that took at most LeSeconds and more than the bucket before it. Bounds are 1, 2, 5, 10, ... ms;
// empty buckets at the ends are left out. The last bucket of a histogram has no bound: its LeSeconds is absent and it
// counts what did not answer. Calls that failed are in no bucket.
type Bucket struct {
	LeSeconds *float64 `json:"leSeconds,omitempty"`
	Count     int      `json:"count"`
}

// SandboxCounts counts sandboxes by state.
type SandboxCounts struct {
	Ready    int `json:"ready"`
	NotReady int `json:"notReady"`
}

// ContainerCounts counts containers by state.
type ContainerCounts struct {
	Created int `json:"created"`
	Running int `json:"running"`
	Exited  int `json:"exited"`
	Unknown int `json:"unknown"`
}

// An RPCSummary summarises all calls of one RPC.
type RPCSummary struct {
	Name       string   `json:"name"`
	Count      int      `json:"count"`
	P50Seconds *float64 `json:"p50Seconds,omitempty"` // quantiles over answered calls
	P90Seconds *float64 `json:"p90Seconds,omitempty"`
	P99Seconds *float64 `json:"p99Seconds,omitempty"`
	MaxSeconds *float64 `json:"maxSeconds,omitempty"`
	Errors     int      `json:"errors"`
	Histogram  []Bucket `json:"histogram,omitempty"`
}

// A Forecast extends today's growth to the limits. Growth is the slope of a straight line fitted to the samples, and
// absent unless they span five seconds and the line explains them; see ForecastOf.
type Forecast struct {
	BytesPerContainer *float64 `json:"bytesPerContainer,omitempty"`
	ContainersAtLimit *int     `json:"containersAtLimit,omitempty"`
	// BytesPerSecond is the growth of the larger list over the series; negative when it shrinks.
	BytesPerSecond *float64 `json:"bytesPerSecond,omitempty"`
	SecondsToLimit *float64 `json:"secondsToLimit,omitempty"` // until it is ResponseLimitBytes large
	// SecondsToThreshold is when slower lists alone take the projected age to the threshold.
	SecondsToThreshold *float64 `json:"secondsToThreshold,omitempty"`
}
