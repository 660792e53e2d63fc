package incident

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
)

// TestBegan dates causes in the recorded cases of package causes, which were looked at at 03:09:26: of a case, a cause,
// the last look without it, and how long ago the last good relist was by the kubelet's metric, if that is changed.
func TestBegan(t *testing.T) {
	for line := range strings.Lines(`list_hang ListHang - - 03:09:24
		list_hang ListHang 03:09:00 - 03:09:24
		list_hang ListHang 03:09:25 - 03:09:24 that look took a moment
		inspect_hang InspectHang 03:09:00 - 03:09:25
		cni_hung CNIHung 03:09:00 - 03:09:24
		image_service_hung ImageServiceHung 03:09:00 - 03:09:24
		task_stuck RuntimeHung 03:09:00 - 03:09:24
		kernel_hung ListHang - - 03:01:24 by the journal
		kernel_hung ListHang 03:09:00 - 03:09:24 the list was answered then: only the call is right
		oom_killed RuntimeDown - - 03:05:24
		pleg_unhealthy PLEGUnhealthy 03:09:00 - 03:04:24 seen late
		kubelet_stalled KubeletStalled 03:09:00 - 02:58:24 seen late
		shim_stuck InspectHang 03:09:00 4m 03:05:26 not each look asks about each object
		shim_stuck InspectHang 03:09:00 20m 03:09:25 relists stopped for another reason
		task_stuck RuntimeHung - 4m 03:05:26
		shim_stuck ShimStuck - 4m - nothing dates it
		runtime_slow RuntimeSlow - - -`) {
		words := strings.Fields(line)
		text, err := os.ReadFile("../causes/testdata/" + words[0] + "/facts.json")
		var in facts.Input
		if err = errors.Join(err, json.Unmarshal(text, &in)); err != nil {
			t.Fatal(err)
		}
		if ago, err := time.ParseDuration(words[3]); err == nil {
			in.Node.Health.Value.Metrics.PLEGLastSeen = in.Now.Add(-ago)
		}
		got := Began(&in)(&checks.Cause{Code: words[1]}, at(words[2]))
		if want := at(words[4]); !got.Truncate(time.Second).Equal(want) {
			t.Errorf("%s: began %v, want %v", strings.TrimSpace(line), got, want)
		}
	}
}
