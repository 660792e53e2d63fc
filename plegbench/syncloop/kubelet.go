package syncloop

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// LoadKubelet reads the kubelet's configuration file, none if its name is empty, and puts the kubelet's flags over
// it, by name with the values in the order given. It also returns the fields that are set and that a syncLoop does
// not act on. What cannot be read, understood or valid is an error. Unlike a kubelet, a syncLoop serves on loopback
// only, at any free port unless one is set, and has no default endpoint.
func LoadKubelet(file string, flags map[string][]string) (c *kubeletconfig.Config, noEffect []string, err error) {
	if file != "" {
		if file, err = filepath.Abs(file); err != nil {
			return nil, nil, err
		}
		flags = maps.Clone(flags)
		flags["config"] = []string{file}
	}
	s := kubeletconfig.Read(flags, kubeletconfig.HostFiles())
	var errs []error
	for _, p := range s.Problems {
		errs = append(errs, p)
	}
	c, noEffect = &s.Config, s.Other
	for _, field := range []string{
		"enableServer", "healthzBindAddress", "healthzPort", "podPidsLimit", "readOnlyPort", "resolvConf", "rotateCertificates", "serverTLSBootstrap", "tlsCertFile",
	} {
		if s.IsSet(field) {
			noEffect = append(noEffect, field)
		}
	}
	if ip := net.ParseIP(c.Address); ip == nil || !ip.IsLoopback() {
		if s.IsSet("address") {
			noEffect = append(noEffect, "address")
		}
		c.Address = "127.0.0.1"
	}
	if !s.IsSet("port") {
		c.Port = 0
	}
	if !s.IsSet("containerRuntimeEndpoint") {
		c.ContainerRuntimeEndpoint = ""
	}
	slices.Sort(noEffect)
	return c, noEffect, errors.Join(append(errs, validate(c))...)
}

// validate refuses what the kubelet refuses of the settings that a syncLoop would not survive
// (pkg/kubelet/apis/config/validation upstream).
func validate(c *kubeletconfig.Config) error {
	low, high := c.ImageGCLowThresholdPercent, c.ImageGCHighThresholdPercent
	for _, rule := range []struct {
		field string
		value any
		ok    bool
		must  string
	}{
		{"syncFrequency", c.SyncFrequency, c.SyncFrequency.Duration > 0, "more than 0"},
		{"fileCheckFrequency", c.FileCheckFrequency, c.FileCheckFrequency.Duration > 0, "more than 0"},
		{"httpCheckFrequency", c.HTTPCheckFrequency, c.HTTPCheckFrequency.Duration > 0, "more than 0"},
		{"nodeStatusUpdateFrequency", c.NodeStatusUpdateFrequency, c.NodeStatusUpdateFrequency.Duration > 0, "more than 0"},
		{"nodeStatusReportFrequency", c.NodeStatusReportFrequency, c.NodeStatusReportFrequency.Duration > 0, "more than 0"},
		{"runtimeRequestTimeout", c.RuntimeRequestTimeout, c.RuntimeRequestTimeout.Duration > 0, "more than 0"},
		{"nodeLeaseDurationSeconds", c.NodeLeaseDurationSeconds, c.NodeLeaseDurationSeconds > 0, "more than 0"},
		{"port", c.Port, c.Port >= 0 && c.Port < 1<<16, "0 to 65535"},
		{"imageGCLowThresholdPercent", low, 0 <= low && low < high && high <= 100, fmt.Sprintf("0 or more, and less than imageGCHighThresholdPercent (%d)", high)},
		{"maxPods", c.MaxPods, c.MaxPods >= 0, "0 or more"},
		{"cgroupDriver", c.CgroupDriver, c.CgroupDriver == "cgroupfs" || c.CgroupDriver == "systemd", "cgroupfs or systemd"},
	} {
		if !rule.ok {
			return fmt.Errorf("%s is %v: it must be %s", rule.field, rule.value, rule.must)
		}
	}
	return nil
}
