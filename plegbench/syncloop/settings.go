package syncloop

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/server"
)

// Periods are the kubelet's times. They are defined in pkg/kubelet/kubelet.go upstream unless noted otherwise.
type Periods struct {
	Relist           time.Duration // between relists, counted from the end of the last
	RelistThreshold  time.Duration // PLEG is unhealthy beyond
	EventedRelist    time.Duration // replaces Relist while the runtime sends events
	EventedThreshold time.Duration
	Sync             time.Duration // tick of the loop, at which it syncs the pods that are due
	Housekeeping     time.Duration
	SkipFirst        time.Duration // pause of the loop while the runtime has errors, doubling up to SkipMost
	SkipMost         time.Duration
	RuntimeStatus    time.Duration // between the end of a CRI Status and the next
	RuntimeDown      time.Duration // the runtime is down after this time without a successful Status
	Request          time.Duration // deadline of a CRI call: runtimeRequestTimeout
	Reconnect        time.Duration // longest pause between attempts to connect to the runtime: k8s.io/cri-client
	Resync           time.Duration // of a pod after a sync without errors: syncFrequency
	BackOff          time.Duration // of a pod whose sync failed
	CrashFirst       time.Duration // CrashLoopBackOff, doubling up to CrashMost
	CrashMost        time.Duration
	CrashReset       time.Duration // CrashLoopBackOff starts over if the container ran longer
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
	LoopStuck        time.Duration // /healthz/syncloop fails after this time, or two Resync, without an iteration
}

// PeriodsFor are the periods of a kubelet with this configuration.
func PeriodsFor(k *kubeletconfig.Config) Periods {
	crashMost := k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	return Periods{
		Relist: time.Second, RelistThreshold: 3 * time.Minute,
		EventedRelist: 5 * time.Minute, EventedThreshold: 10 * time.Minute,
		Sync: time.Second, Housekeeping: 2 * time.Second,
		SkipFirst: 100 * time.Millisecond, SkipMost: 5 * time.Second,
		RuntimeStatus: 5 * time.Second, RuntimeDown: 30 * time.Second,
		Request: k.RuntimeRequestTimeout.Duration, Reconnect: 3 * time.Second,
		Resync: k.SyncFrequency.Duration, BackOff: 10 * time.Second,
		CrashFirst: min(10*time.Second, crashMost), CrashMost: crashMost, CrashReset: 10 * time.Minute,
		PullFirst: 10 * time.Second, PullMost: 5 * time.Minute,
		FileCheck: k.FileCheckFrequency.Duration, HTTPCheck: k.HTTPCheckFrequency.Duration,
		NodeStatus: k.NodeStatusUpdateFrequency.Duration, NodeReport: k.NodeStatusReportFrequency.Duration,
		StatusManager: 10 * time.Second,
		ContainerGC:   time.Minute, ImageGC: 5 * time.Minute, Eviction: 10 * time.Second,
		LoopStuck: 5 * time.Minute,
	}
}

// leastPeriod is the least shortened period, lest a loop spins.
const leastPeriod = 5 * time.Millisecond

// Faster returns the periods shortened by a factor: with 60, three minutes become three seconds. None gets below 5 ms.
func (p Periods) Faster(factor float64) Periods {
	fields := reflect.ValueOf(&p).Elem()
	for i := range fields.NumField() {
		d := fields.Field(i).Addr().Interface().(*time.Duration)
		*d = max(leastPeriod, time.Duration(float64(*d)/factor))
	}
	return p
}

// LoadKubelet reads the kubelet's configuration file, none if its name is empty, and puts the kubelet's flags over it,
// by name with the values in the order given. It also returns the fields that are set and that a syncLoop does not act
// on. What cannot be read, understood or valid is an error. Unlike a kubelet, a syncLoop serves on loopback unless it
// is Secure and an address is set, at any free port unless one is set, without the debugging handlers unless they are
// switched on, and has no default endpoint.
func LoadKubelet(file string, flags map[string][]string) (c *kubeletconfig.Config, noEffect []string, err error) {
	if file != "" {
		if file, err = filepath.Abs(file); err != nil {
			return nil, nil, err
		}
		flags = maps.Clone(flags)
		flags["config"] = []string{file}
	}
	s := kubeletconfig.Read(flags, kubeletconfig.HostFiles(), false)
	var errs []error
	for _, p := range s.Problems {
		errs = append(errs, p)
	}
	c, noEffect = &s.Config, s.Other
	for _, field := range []string{
		"containerLogMaxSize", "enableServer", "failCgroupV1", "failSwapOn", "healthzBindAddress", "healthzPort",
		"imageServiceEndpoint", "kubeReserved", "podPidsLimit", "readOnlyPort", "resolvConf", "rotateCertificates",
		"seccompDefault", "serverTLSBootstrap", "systemReserved", "volumeStatsAggPeriod",
	} {
		if s.IsSet(field) {
			noEffect = append(noEffect, field)
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		field := "featureGates." + gate
		switch {
		case slices.Contains(knownGates(), gate):
		case strings.HasPrefix(s.Origin(field), "--"),
			slices.ContainsFunc(knownGates(), func(known string) bool { return strings.EqualFold(known, gate) }):
			errs = append(errs, fmt.Errorf("unrecognized feature gate: %s: here are %s", gate,
				strings.Join(knownGates(), ", ")))
		default: // a kubelet's file may have any
			noEffect = append(noEffect, field)
		}
	}
	if secure := Secure(c, kubeletconfig.Last(flags, "kubeconfig") != ""); !s.IsSet("address") {
		c.Address = "127.0.0.1"
	} else if ip := net.ParseIP(c.Address); !secure && !ip.IsLoopback() {
		noEffect = append(noEffect, "address")
		c.Address = "127.0.0.1"
	}
	if !s.IsSet("port") {
		c.Port = 0
	}
	c.EnableDebuggingHandlers = c.EnableDebuggingHandlers && s.IsSet("enableDebuggingHandlers")
	if !s.IsSet("containerRuntimeEndpoint") {
		c.ContainerRuntimeEndpoint = ""
	}
	slices.Sort(noEffect)
	return c, noEffect, errors.Join(append(errs, validate(c))...)
}

// ContainerGC reads the policy of container garbage collection, which only flags of the kubelet can set, by name with
// the values in the order given.
func ContainerGC(flags map[string][]string) (kuberuntime.GCPolicy, error) {
	policy := kuberuntime.DefaultGCPolicy()
	for name, into := range map[string]any{
		"maximum-dead-containers-per-container": &policy.MaxPerPodContainer,
		"maximum-dead-containers":               &policy.MaxContainers, "minimum-container-ttl-duration": &policy.MinAge,
	} {
		text := kubeletconfig.Last(flags, name)
		var err error
		if number, ok := into.(*int); ok && text != "" {
			*number, err = strconv.Atoi(text)
		} else if text != "" {
			policy.MinAge, err = time.ParseDuration(text)
		}
		if err != nil || policy.MinAge < 0 {
			return policy, fmt.Errorf("--%s %s: it must be a number, or a duration of 0 or more", name, text)
		}
	}
	return policy, nil
}

// knownGates are the feature gates that a syncLoop acts on.
func knownGates() []string { return []string{"AllAlpha", "EventedPLEG", "PLEGOnDemandRelist"} }

// validate refuses invalid settings, as a kubelet does, where they would break a syncLoop
// (pkg/kubelet/apis/config/validation upstream).
func validate(c *kubeletconfig.Config) error {
	var errs []error
	rule := func(field string, value any, ok bool, must string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: it must be %s", field, value, must))
		}
	}
	period := func(field string, d time.Duration) { rule(field, d, d > 0, "more than 0") }
	period("syncFrequency", c.SyncFrequency.Duration)
	period("fileCheckFrequency", c.FileCheckFrequency.Duration)
	period("httpCheckFrequency", c.HTTPCheckFrequency.Duration)
	period("nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency.Duration)
	period("nodeStatusReportFrequency", c.NodeStatusReportFrequency.Duration)
	period("runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration)
	rule("nodeLeaseDurationSeconds", c.NodeLeaseDurationSeconds, c.NodeLeaseDurationSeconds > 0, "more than 0")
	rule("port", c.Port, c.Port >= 0 && c.Port < 1<<16, "0 to 65535")
	rule("maxPods", c.MaxPods, c.MaxPods >= 0, "0 or more")
	low, high := c.ImageGCLowThresholdPercent, c.ImageGCHighThresholdPercent
	rule("imageGCLowThresholdPercent", low, 0 <= low && low < high && high <= 100,
		fmt.Sprintf("0 or more, and less than imageGCHighThresholdPercent (%d)", high))
	least, most := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	rule("imageMaximumGCAge", most, most == 0 || most > least,
		fmt.Sprintf("0, or more than imageMinimumGCAge (%v)", least))
	driver := c.CgroupDriver
	rule("cgroupDriver", driver, driver == "cgroupfs" || driver == "systemd", "cgroupfs or systemd")
	mode := c.Authorization.Mode
	rule("authorization.mode", mode, mode == "Webhook" || mode == "AlwaysAllow", "Webhook or AlwaysAllow")
	return errors.Join(errs...)
}

// Secure reports whether the server has TLS and authentication: with an API server, or where a certificate or the CAs
// of clients are set. Else it is plain, for everybody on loopback.
func Secure(k *kubeletconfig.Config, api bool) bool {
	return api || k.TLSCertFile+k.TLSPrivateKeyFile+k.Authentication.X509.ClientCAFile != ""
}

// auth makes the server's authentication; nil without any.
func (cfg *Config) auth() (*server.Auth, error) {
	k := cfg.Kubelet
	if !Secure(k, cfg.Client != nil) {
		return nil, nil
	}
	authn, authz := k.Authentication, k.Authorization
	a := &server.Auth{
		Tokens: authn.Webhook.Enabled && cfg.Client != nil, Anonymous: authn.Anonymous.Enabled,
		AlwaysAllow: authz.Mode == "AlwaysAllow", Reviews: cfg.Client, NodeName: cfg.NodeName,
		TokenTTL: authn.Webhook.CacheTTL.Duration, AllowTTL: authz.Webhook.CacheAuthorizedTTL.Duration,
		DenyTTL: authz.Webhook.CacheUnauthorizedTTL.Duration,
	}
	if cfg.Client == nil && !a.AlwaysAllow {
		return nil, errors.New("no client provided, cannot use webhook authorization: there is no API server; " +
			"give --kubeconfig, or --authorization-mode AlwaysAllow")
	}
	var err error
	if file := authn.X509.ClientCAFile; file != "" {
		if a.ClientCAs, err = cert.NewPool(file); err != nil {
			return nil, fmt.Errorf("unable to load client CA file %s: %w", file, err)
		}
	}
	a.Certificate, err = server.Certificate(k.TLSCertFile, k.TLSPrivateKeyFile, filepath.Join(cfg.RootDir, pkiDir),
		cfg.NodeName)
	return a, err
}

// pkiDir is the folder of the serving certificate, below the root directory.
const pkiDir = "io.kdiag.syncloop.pki"

// configz returns the configuration for /configz, without the credentials in staticPodURLHeader.
func configz(k *kubeletconfig.Config) *kubeletconfig.Config {
	masked := *k
	masked.StaticPodURLHeader = map[string][]string{}
	for name := range k.StaticPodURLHeader {
		masked.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return &masked
}
