package nodestatus

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReadyCondition(t *testing.T) {
	whole := Machine{Cores: 2, Memory: 1 << 30, Storage: 1 << 30}.capacity(110)
	now := metav1.Unix(100, 0)
	tests := []struct {
		name     string
		capacity v1.ResourceList
		errs     []error
		want     v1.NodeCondition
	}{
		{
			"ready", whole,
			[]error{nil, nil},
			v1.NodeCondition{Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status"},
		},
		{
			"in order", whole,
			[]error{errors.New("container runtime is down"), errors.New("network state unknown"), nil},
			v1.NodeCondition{Status: "False", Reason: "KubeletNotReady", Message: "[container runtime is down, network state unknown]"},
		},
		{
			"no capacity", Machine{}.capacity(110), nil,
			v1.NodeCondition{Status: "False", Reason: "KubeletNotReady", Message: "missing node capacity for resources: cpu, memory, ephemeral-storage"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Type, tt.want.LastHeartbeatTime = v1.NodeReady, now
			if diff := cmp.Diff(tt.want, readyCondition(tt.capacity, now, tt.errs...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
