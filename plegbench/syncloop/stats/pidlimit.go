package stats

import (
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// pidlimit reads how many tasks the node has, and may have (pkg/kubelet/stats/pidlimit upstream). What cannot be read
// is nil.
func pidlimit(proc string) *statsapi.RlimitStats {
	scan := func(file, format string, into ...any) bool {
		text, _ := os.ReadFile(filepath.Join(proc, file))
		_, err := fmt.Sscanf(string(text), format, into...)
		return err == nil
	}
	out := &statsapi.RlimitStats{Time: metav1.Now()}
	var most, all int64
	for _, file := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		if scan(file, "%d", &most) && (out.MaxPID == nil || most < *out.MaxPID) {
			out.MaxPID = new(most)
		}
	}
	var load [3]float64
	var running int64
	if scan("loadavg", "%f %f %f %d/%d", &load[0], &load[1], &load[2], &running, &all) {
		out.NumOfRunningProcesses = &all
	}
	return out
}
