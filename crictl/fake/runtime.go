package fake

import (
	"cmp"
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criVersion is the version of the CRI API as Version answers it.
const criVersion = "v1"

// runtimeHandlers are the runtime classes on offer; the empty one is the default.
func runtimeHandlers() []string { return []string{"", "runc"} }

// Version names the runtime.
func (s *service) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:           "0.1.0", // of the kubelet's runtime API, unchanged since the first CRI
		RuntimeName:       cmp.Or(s.scenario.Runtime.Name, "containerd"),
		RuntimeVersion:    cmp.Or(s.scenario.Runtime.Version, "v2.1.4"),
		RuntimeApiVersion: criVersion,
	}, nil
}

// conditions are the scenario's, completed by those that every kubelet expects.
func (s *service) conditions() []*runtimeapi.RuntimeCondition {
	all := []*runtimeapi.RuntimeCondition{}
	given := map[string]bool{}
	for _, c := range s.scenario.Conditions {
		given[c.Type] = true
		all = append(all,
			&runtimeapi.RuntimeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	for _, name := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		if !given[name] {
			all = append(all, &runtimeapi.RuntimeCondition{Type: name, Status: true})
		}
	}
	return all
}

// Status reports the runtime's conditions.
func (s *service) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	resp := &runtimeapi.StatusResponse{
		Status:   &runtimeapi.RuntimeStatus{Conditions: s.conditions()},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	for _, name := range runtimeHandlers() {
		resp.RuntimeHandlers = append(resp.RuntimeHandlers, &runtimeapi.RuntimeHandler{
			Name:     name,
			Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true},
		})
	}
	if req.GetVerbose() {
		config, err := json.Marshal(map[string]any{
			"simulated": true, "scenario": s.scenario.Name, "sandboxImage": pauseImage,
			"maxSendMessageSize": cmp.Or(s.scenario.Limits.Send, defaultMessageLimit),
			"maxRecvMessageSize": cmp.Or(s.scenario.Limits.Receive, defaultMessageLimit),
		})
		if err != nil {
			return nil, err
		}
		resp.Info = map[string]string{"config": string(config)}
	}
	return resp, nil
}

// RuntimeConfig names the cgroup driver.
func (s *service) RuntimeConfig(
	context.Context, *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_SYSTEMD
	if s.scenario.Runtime.CgroupDriver == "cgroupfs" {
		driver = runtimeapi.CgroupDriver_CGROUPFS
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig takes note of the node's pod network, of which nothing depends here.
func (s *service) UpdateRuntimeConfig(
	context.Context, *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
