//go:build e2e

// Package kubelet compares the syncLoop with the kubelet on the same pods.
package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

var update = flag.Bool("update", false, "write testdata/kubelet.txt from what the program of KUBELET did")

const (
	// lasting is for how long a value must be seen to be expected of the other program too: a shorter one may fall
	// between two readings.
	lasting = 2 * time.Second
	// stays is the same for what the kubelet had not on a machine with nothing else to do: on a busy one, containers that
	// end at once take longer.
	stays = 15 * time.Second
	// lastRestart is the last restart of a container that is compared. Its back-off is 40 s; a later one's is longer.
	lastRestart = 2
	patience    = 3 * time.Minute
	golden      = "testdata/kubelet.txt"
	node        = "e2e"
)

func TestMain(m *testing.M) { nodebox.Main(m) }

// TestEndToEndKubelet runs the pods of testdata/pods.yaml and compares what becomes of each with testdata/kubelet.txt:
// phases, conditions, states of containers, and calls of the runtime, in the order in which kubelet 1.36.3 had them,
// short ones in parentheses. Then it does the same through incidents. Where KUBELET is the path of a kubelet, that
// kubelet is compared with the file too, and the syncLoop's configurations of sandboxes and containers with the
// kubelet's. With -update the file is written.
func TestEndToEndKubelet(t *testing.T) {
	var theirs *run
	if kubelet := os.Getenv("KUBELET"); kubelet != "" {
		t.Run("kubelet", func(t *testing.T) {
			theirs = start(t, "https", kubelet, "--config=${CONFIG}", "--root-dir=${DIR}/root", "--cert-dir=${DIR}/pki",
				"--hostname-override="+node)
			if *update {
				theirs.observeAll(t)
				theirs.incidents(t)
				e2etest.Must(t, os.WriteFile(golden, []byte(theirs.String()), 0o644))
				return
			}
			theirs.compareAll(t)
		})
	}
	t.Run("syncloop", func(t *testing.T) {
		ours := start(t, "http", e2etest.Program(t), "syncloop", "--config=${CONFIG}", "--root-dir=${DIR}/root",
			"--log-dir=${DIR}/log", "--node-name="+node)
		ours.compareAll(t)
		if theirs != nil {
			ours.compareConfigs(t, theirs)
		}
	})
}

// A run is a program with the pods, and what was seen of them.
type run struct {
	*recorder
	box      *nodebox.Containerd
	start    func()
	stop     func()
	dir, url string
	before   string         // of the names of tracks
	calm     []string       // the only pods that are observed, if any
	earlier  map[object]int // calls before the incidents
	tracks   map[string]*track
	uids     map[string][]string // of a pod, in their order
	changed  time.Time           // when a value was last seen first
}

// A track is what one field of a pod was, one value after another.
type track struct {
	values []string
	since  []time.Time
	ended  time.Time // when the last value was last seen
}

// start starts a program with all pods on a runtime of its own. The scheme is that of its server.
func start(t *testing.T, scheme, program string, args ...string) *run {
	t.Helper()
	box := nodebox.Start(t, nodebox.Options{Network: true})
	r := &run{box: box, dir: t.TempDir(), tracks: map[string]*track{}, uids: map[string][]string{}}
	socket := filepath.Join(box.Dir(), "r.sock")
	r.recorder = record(t, box.Endpoint(), socket)
	port := e2etest.FreePort(t)
	r.url = fmt.Sprintf("%s://127.0.0.1:%d/pods", scheme, port)
	config := filepath.Join(r.dir, "config.yaml")
	e2etest.Must(t, os.Mkdir(r.dir+"/manifests", 0o755))
	fill := strings.NewReplacer("${DIR}", r.dir, "${CONFIG}", config,
		"${ENDPOINT}", "unix://"+socket, "${PORT}", strconv.Itoa(port))
	e2etest.Must(t, os.WriteFile(config, []byte(fill.Replace(e2etest.Read(t, "testdata/config.yaml"))), 0o644))
	for _, p := range r.pods(t) {
		r.apply(t, p)
	}
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	log, err := os.Create(filepath.Join(r.dir, "log.txt"))
	e2etest.Must(t, err)
	var cmd *exec.Cmd
	r.start = func() {
		cmd = exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = log, log
		e2etest.Must(t, cmd.Start())
	}
	r.stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the log ends with:\n%s", text[max(0, len(text)-20000):])
		}
		e2etest.Must(t, nodebox.UnmountBelow(r.dir))
	})
	return r
}

// pods are the pods of testdata/pods.yaml.
func (r *run) pods(t *testing.T) (pods []*v1.Pod) {
	t.Helper()
	const forever = "trap 'exit 0' TERM; sleep 1000000 & wait"
	pods = e2etest.Documents[v1.Pod](t, "pods.yaml", "${DIR}", r.dir, "${FOREVER}", forever)
	for _, p := range pods {
		p.APIVersion, p.Kind, p.Namespace = "v1", "Pod", "shop"
		if p.Spec.TerminationGracePeriodSeconds == nil {
			p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		}
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if c := &list[i]; c.Image == "" {
					c.Image, c.ImagePullPolicy = nodebox.ImageBusybox, v1.PullIfNotPresent
				}
			}
		}
	}
	return pods
}

func (r *run) manifest(name string) string { return filepath.Join(r.dir, "manifests", name+".yaml") }

// apply writes a manifest, in one step.
func (r *run) apply(t *testing.T, p *v1.Pod) {
	t.Helper()
	data, err := json.Marshal(p)
	e2etest.Must(t, err)
	tmp := filepath.Join(r.dir, "new")
	e2etest.Must(t, errors.Join(os.WriteFile(tmp, data, 0o644), os.Rename(tmp, r.manifest(p.Name))))
}

// observe reads the pods again and again until done, and deletes and changes some when they are ready.
func (r *run) observe(t *testing.T, done func() bool) {
	t.Helper()
	acted := false
	for deadline := time.Now().Add(patience); !done() && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err := r.read(t.Context()); err != nil {
			continue // it starts
		}
		if acted || !r.was("deleted Ready", "True") || !r.was("deleted-ignores-term Ready", "True") ||
			!r.was("changed Ready", "True") {
			continue
		}
		acted = true
		e2etest.Must(t, errors.Join(os.Remove(r.manifest("deleted")), os.Remove(r.manifest("deleted-ignores-term"))))
		for _, p := range r.pods(t) {
			if p.Name == "changed" {
				p.Spec.Containers[0].Env[0].Value = "two"
				r.apply(t, p)
			}
		}
	}
}

// until reads the pods again and again until done.
func (r *run) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	e2etest.Eventually(t, what, func() bool {
		_ = r.read(t.Context()) // the program may be away
		return done()
	})
}

// incidents kills processes, freezes and restarts the runtime, and restarts the program, and observes some calm pods
// anew: only the killed containers may start again.
func (r *run) incidents(t *testing.T) {
	t.Helper()
	r.before, r.calm = "incidents ", []string{"plain", "two-containers", "sidecar-server", "guaranteed", "readiness-late"}
	r.earlier = map[object]int{}
	for _, uids := range r.uids {
		for _, uid := range uids {
			for _, o := range r.objects(uid) {
				r.earlier[o] = len(r.callsOf(o))
			}
		}
	}
	r.kill(t, r.uids["plain"][0], "c")
	r.until(t, "a killed container runs again", func() bool {
		return r.was("incidents plain c", "running started ready #1")
	})
	relists := func() {
		t.Helper()
		_, before := r.relisted()
		r.until(t, "the runtime answers relists", func() bool { _, now := r.relisted(); return now > before+2 })
	}
	e2etest.Must(t, r.box.Pause(t.Context()))
	before, _ := r.relisted()
	r.until(t, "a relist waits for the frozen runtime", func() bool { now, _ := r.relisted(); return now > before })
	e2etest.Must(t, r.box.Resume())
	relists()
	e2etest.Must(t, r.box.Restart(t.Context()))
	relists()
	r.stop()
	r.start()
	relists()
	r.kill(t, r.uids["two-containers"][0], "a")
	r.until(t, "a killed container runs again", func() bool {
		return r.was("incidents two-containers a", "running started ready #1")
	})
}

// compareAll compares what becomes of all pods, and then of the calm ones through the incidents.
func (r *run) compareAll(t *testing.T) {
	t.Helper()
	r.compare(t, parse(t))
	if !t.Failed() {
		r.incidents(t)
		r.compare(t, parse(t))
	}
}

// observeAll reads the pods until nothing has changed for longer than the longest back-off that is compared.
func (r *run) observeAll(t *testing.T) {
	r.changed = time.Now()
	r.observe(t, func() bool { return time.Since(r.changed) > time.Minute })
	if len(r.tracks) == 0 {
		t.Fatal("no pod was seen")
	}
}

func (r *run) was(name, value string) bool {
	tr := r.tracks[name]
	return tr != nil && slices.Contains(tr.values, value)
}

// read reads the pods once.
func (r *run) read(ctx context.Context) error {
	_, body, err := e2etest.Get(ctx, r.url, "")
	var list v1.PodList
	if err := cmp.Or(err, json.Unmarshal([]byte(body), &list)); err != nil {
		return err
	}
	now, seen := time.Now(), map[string]bool{}
	for i := range list.Items {
		seen[string(list.Items[i].UID)] = true
		r.see(&list.Items[i], now)
	}
	for name, uids := range r.uids {
		for i, uid := range uids {
			if !seen[uid] && (r.calm == nil || slices.Contains(r.calm, name)) {
				r.add(nth(name, i)+" phase", "gone", now)
			}
		}
	}
	return nil
}

// nth names the pod that had a name as the nth one.
func nth(name string, i int) string { return name + strings.Repeat("'", i) }

// see keeps what a pod is.
func (r *run) see(p *v1.Pod, now time.Time) {
	pod, uid := strings.TrimSuffix(p.Name, "-"+node), string(p.UID)
	if r.calm != nil && !slices.Contains(r.calm, pod) {
		return
	}
	i := slices.Index(r.uids[pod], uid)
	if i < 0 {
		i = len(r.uids[pod])
		r.uids[pod] = append(r.uids[pod], uid)
	}
	name := nth(pod, i) + " "
	r.add(name+"phase", strings.TrimSpace(string(p.Status.Phase)+" "+p.Status.Reason), now)
	for _, c := range p.Status.Conditions {
		r.add(name+string(c.Type), strings.TrimSpace(string(c.Status)+" "+c.Reason), now)
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.RestartCount <= lastRestart {
			r.add(name+c.Name, state(c), now)
		}
	}
}

// state words the state of a container.
func state(c v1.ContainerStatus) string {
	ended := func(s *v1.ContainerStateTerminated) string {
		text := fmt.Sprintf("%s %d", s.Reason, s.ExitCode)
		if s.Message != "" && s.Reason == "Error" {
			text += fmt.Sprintf(" %q", s.Message)
		}
		return text
	}
	var text string
	switch s := c.State; {
	case s.Waiting != nil:
		text = "waiting " + s.Waiting.Reason
		if last := c.LastTerminationState.Terminated; last != nil {
			text += " after " + ended(last)
		}
	case s.Running != nil:
		text = "running"
		if c.Started != nil && *c.Started {
			text += " started"
		}
		if c.Ready {
			text += " ready"
		}
	case s.Terminated != nil:
		text = ended(s.Terminated)
	}
	if c.RestartCount > 0 {
		text += fmt.Sprintf(" #%d", c.RestartCount)
	}
	return text
}

// add keeps a value of a track; one that comes and goes, as an image is pulled again and again, twice.
func (r *run) add(name, value string, now time.Time) {
	name = r.before + name
	tr := r.tracks[name]
	if tr == nil {
		tr = &track{}
		r.tracks[name] = tr
	}
	n := len(tr.values)
	if again := slices.Index(tr.values, value); n > 0 && tr.values[n-1] != value && again >= 0 &&
		slices.Contains(tr.values[again+1:], value) {
		return
	}
	if n == 0 || tr.values[n-1] != value {
		tr.values, tr.since = append(tr.values, value), append(tr.since, now)
		r.changed = now
	}
	tr.ended = now
}

// list returns the values, those shorter than a limit in parentheses.
func (tr *track) list(limit time.Duration) []string {
	out := slices.Clone(tr.values)
	for i, until := range append(slices.Clone(tr.since[1:]), tr.ended) {
		if until.Sub(tr.since[i]) < limit {
			out[i] = "(" + out[i] + ")"
		}
	}
	return out
}

// lists returns all tracks, and the calls about each object as one more.
func (r *run) lists(limit time.Duration) map[string][]string {
	out := map[string][]string{}
	for name, tr := range r.tracks {
		out[name] = tr.list(limit)
	}
	for pod, uids := range r.uids {
		for i, uid := range uids {
			for _, o := range r.objects(uid) {
				name, calls := nth(pod, i)+" calls "+cmp.Or(o.container, "sandbox"), r.callsOf(o)
				if n, ok := r.earlier[o]; ok {
					if slices.Contains(r.calm, pod) && len(calls) > n {
						out["incidents "+name] = calls[n:]
					}
					calls = calls[:n]
				}
				out[name] = calls
			}
		}
	}
	return out
}

// objects returns the sandbox and the containers of a pod.
func (r *run) objects(uid string) (all []object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.calls {
		if o.uid == uid {
			all = append(all, o)
		}
	}
	return all
}

// String is the content of testdata/kubelet.txt.
func (r *run) String() string {
	lists, text := r.lists(lasting), strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		fmt.Fprintf(&text, "%s: %s\n", name, strings.Join(lists[name], " > "))
	}
	return text.String()
}

// parse reads testdata/kubelet.txt.
func parse(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for line := range strings.Lines(e2etest.Read(t, golden)) {
		name, values, _ := strings.Cut(strings.TrimSpace(line), ": ")
		out[name] = strings.Split(values, " > ")
	}
	return out
}

// compare waits until all lasting values of the kubelet were seen in their order, and complains of each lasting value
// that the kubelet had not.
func (r *run) compare(t *testing.T, want map[string][]string) {
	t.Helper()
	elsewhere := func(name string, _ []string) bool {
		return excused(name) || strings.HasPrefix(name, "incidents ") != (r.before != "")
	}
	maps.DeleteFunc(want, elsewhere)
	r.observe(t, func() bool { return len(differences(want, r.lists(lasting))) == 0 })
	got := r.lists(stays)
	maps.DeleteFunc(got, elsewhere)
	wrong := differences(want, got)
	maps.Copy(wrong, differences(got, want))
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		t.Errorf("%s: %s is of one alone:\n  kubelet %s\n  here    %s", name, wrong[name],
			strings.Join(want[name], " > "), strings.Join(got[name], " > "))
	}
}

// excused reports whether a track is of a pod that may fare differently.
func excused(track string) bool {
	pod, _, _ := strings.Cut(track, " ")
	return allowed[pod] != ""
}

// differences returns the first lasting value of each track that the other has not, in this order.
func differences(of, in map[string][]string) map[string]string {
	out := map[string]string{}
	for name, values := range of {
		rest := in[name]
		for _, v := range values {
			if strings.HasPrefix(v, "(") {
				continue
			}
			i := slices.IndexFunc(rest, func(x string) bool { return strings.Trim(x, "()") == v })
			if i < 0 {
				out[name] = v
				break
			}
			rest = rest[i+1:]
		}
	}
	return out
}
