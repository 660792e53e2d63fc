package nodestatus

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPressure(t *testing.T) {
	type row struct {
		Kind           v1.NodeConditionType
		Status         v1.ConditionStatus
		Reason         string
		Message, Event string
	}
	for _, under := range []bool{false, true} {
		want := []row{
			{"MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"},
			{"DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"},
			{"PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"},
		}
		if under {
			want = []row{
				{"MemoryPressure", "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"},
				{"DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"},
				{"PIDPressure", "True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"},
			}
		}
		t1, t2 := metav1.Unix(100, 0), metav1.Unix(200, 0)
		var conditions []v1.NodeCondition
		var got []row
		for i, p := range pressures() {
			var event, again string
			conditions, event = setPressure(conditions, p, under, t1)
			c := conditions[i]
			got = append(got, row{c.Type, c.Status, c.Reason, c.Message, event})
			conditions, again = setPressure(conditions, p, under, t2)
			if c = conditions[i]; again != "" || c.LastTransitionTime != t1 || c.LastHeartbeatTime != t2 {
				t.Errorf("%s that stays: event %q, transition %v, heartbeat %v", c.Type, again, c.LastTransitionTime, c.LastHeartbeatTime)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

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

func TestSetReady(t *testing.T) {
	at := func(s int64, status v1.ConditionStatus) v1.NodeCondition {
		return v1.NodeCondition{Type: v1.NodeReady, Status: status, LastHeartbeatTime: metav1.Unix(s, 0)}
	}
	var list []v1.NodeCondition
	var got []bool
	var transitions []int64
	for i, status := range []v1.ConditionStatus{"False", "False", "True", "True", "False"} {
		var c v1.NodeCondition
		var changed bool
		list, c, changed = setReady(list, at(int64(i), status))
		got, transitions = append(got, changed), append(transitions, c.LastTransitionTime.Unix())
	}
	if diff := cmp.Diff([]bool{false, false, true, false, true}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{0, 0, 2, 2, 4}, transitions); diff != "" || len(list) != 1 {
		t.Errorf("%d conditions, transitions %s", len(list), diff)
	}
}

func TestStatusChanged(t *testing.T) {
	base := func() *v1.NodeStatus {
		return &v1.NodeStatus{
			Capacity:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
			Conditions: []v1.NodeCondition{{Type: "A", Message: "a", LastHeartbeatTime: metav1.Unix(1, 0)}, {Type: "B"}},
		}
	}
	tests := []struct {
		name   string
		change func(s *v1.NodeStatus)
		want   bool
	}{
		{"nothing", func(*v1.NodeStatus) {}, false},
		{"heartbeat", func(s *v1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.Unix(2, 0) }, false},
		{"order", func(s *v1.NodeStatus) { s.Conditions[0], s.Conditions[1] = s.Conditions[1], s.Conditions[0] }, false},
		{"quantity in other words", func(s *v1.NodeStatus) { s.Capacity[v1.ResourceMemory] = resource.MustParse("1024Mi") }, false},
		{"message", func(s *v1.NodeStatus) { s.Conditions[0].Message = "b" }, true},
		{"another condition", func(s *v1.NodeStatus) { s.Conditions = append(s.Conditions, v1.NodeCondition{Type: "C"}) }, true},
		{"version", func(s *v1.NodeStatus) { s.NodeInfo.ContainerRuntimeVersion = "containerd://Unknown" }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, after := base(), base()
			tt.change(after)
			if got := statusChanged(*before, *after); got != tt.want {
				t.Errorf("got %v", got)
			}
			if !before.Conditions[0].LastHeartbeatTime.Equal(&metav1.Time{Time: time.Unix(1, 0)}) {
				t.Error("the comparison changed what it compares")
			}
		})
	}
}
