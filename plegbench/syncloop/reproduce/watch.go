package reproduce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop"
	nouns "github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
)

// After these times a stall counts as an event, at the kubelet's own pace. A relist of a healthy node takes well
// below a second, and the next one starts a second later.
const (
	stuckAfter  = 30 * time.Second
	silentAfter = 10 * time.Second
)

// A watch finds what no log line reports: relists that do not end, deaths that go unnoticed, pods that run again.
type watch struct {
	timeline *timeline
	speed    float64
	node     string

	mu     sync.Mutex
	stuck  time.Time // start of the relist that was reported as stuck
	deaths []*death
	silent time.Time // the last death that was reported as unnoticed; others near it are not reported
	late   bool      // the pod that was added is not running yet
}

// A death is a container that was killed.
type death struct {
	pod, id string
	at      time.Time
	noticed bool // PLEG has reported it
	reborn  bool // the pod runs again
}

// pace turns a duration of this run into one at the kubelet's own pace.
func (w *watch) pace(d time.Duration) time.Duration { return time.Duration(float64(d) * w.speed) }

func (w *watch) paced(d time.Duration) string {
	return w.pace(d).Round(100 * time.Millisecond).String()
}

// after reports whether a time at the kubelet's pace has passed since then.
func (w *watch) after(since time.Time, d time.Duration) bool { return w.pace(time.Since(since)) > d }

func (w *watch) died(pod, id string) {
	w.timeline.event(PodDied, pod+": its container is killed")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaths = append(w.deaths, &death{pod: pod, id: id, at: time.Now()})
}

// logged finds the deaths that PLEG reports to the loop.
func (w *watch) logged(msg string, kv []any) {
	if msg != "SyncLoop (PLEG): event for pod" {
		return
	}
	for _, v := range kv {
		if e, ok := v.(pleg.Event); ok && e.Type == pleg.ContainerDied {
			w.noticed(e.Data)
		}
	}
}

func (w *watch) noticed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deaths {
		if d.id == id && !d.noticed {
			d.noticed = true
			w.timeline.event(PodNoticed, fmt.Sprintf("%s: PLEG tells of its death after %s", d.pod, w.paced(time.Since(d.at))))
		}
	}
}

// look compares with what was there before.
func (w *watch) look(s syncloop.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookAtRelist(s.PLEG)
	for _, d := range w.deaths {
		if !d.noticed && w.after(d.at, silentAfter) && (w.silent.IsZero() || w.pace(d.at.Sub(w.silent)) > silentAfter) {
			w.silent = d.at
			w.timeline.event(EventsStop, fmt.Sprintf("%s died %s ago, and PLEG has not told of it", d.pod, w.paced(time.Since(d.at))))
		}
		if !d.reborn && w.runs(s.Pods, d.pod, d.id) {
			d.reborn = true
			w.timeline.event(PodRunning, fmt.Sprintf("%s runs again %s after its container died", d.pod, w.paced(time.Since(d.at))))
		}
	}
	if w.late && w.runs(s.Pods, latePod, "") {
		w.late = false
		w.timeline.event(PodRunning, latePod+" runs")
	}
}

func (w *watch) lookAtRelist(s pleg.Snapshot) {
	if !w.stuck.IsZero() && !s.InProgressSince.Equal(w.stuck) {
		w.timeline.event(RelistEnded, "the relist ended after "+w.paced(s.Duration))
		w.stuck = time.Time{}
	}
	if since := s.InProgressSince; w.stuck.IsZero() && !since.IsZero() && w.after(since, stuckAfter) {
		w.stuck = since
		w.timeline.event(RelistStuck, "a relist has not ended for "+w.paced(time.Since(since)))
	}
}

// runs reports whether a pod's container runs and is another one than the dead.
func (w *watch) runs(pods []*v1.Pod, name, dead string) bool {
	i := slices.IndexFunc(pods, func(p *v1.Pod) bool { return p.Name == name+"-"+w.node })
	return i >= 0 && ready(pods[i]) && nouns.ParseID(pods[i].Status.ContainerStatuses[0].ContainerID).ID != dead
}

func ready(p *v1.Pod) bool {
	return len(p.Status.ContainerStatuses) == len(p.Spec.Containers) && !slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || !c.Ready
	})
}

// settled returns nil, or what is still to come until all pods run and every death has been noticed.
func (w *watch) settled(pods []*v1.Pod, want int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wait []string
	for _, d := range w.deaths {
		if !d.noticed || !d.reborn {
			wait = append(wait, d.pod+" has not been started again")
		}
	}
	if w.late {
		wait = append(wait, latePod+" does not run")
	}
	running := 0
	for _, p := range pods {
		if ready(p) {
			running++
		}
	}
	if running < want {
		wait = append(wait, fmt.Sprintf("%d of %d pods run", running, want))
	}
	if len(wait) == 0 {
		return nil
	}
	return errors.New(strings.Join(wait, ", "))
}
