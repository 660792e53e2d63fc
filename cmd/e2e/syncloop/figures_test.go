//go:build e2e

package syncloop

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
)

// The figures of docs/bench on the syncLoop; docs/bench/run runs them. KDIAG in the environment names the program to
// measure, KUBELET a kubelet to hold against.

const (
	lookEvery = 50 * time.Millisecond // between looks for running containers, which every way bears alike
	settled   = 5 * time.Second       // how long a kubelet without pods has been healthy when it is given some
	restAfter = 15 * time.Second      // from the last container's start to the look at the memory at rest
	allRunIn  = 2 * time.Minute       // for all containers to run
)

// BenchmarkPods runs 100 pods of one sleeping container on the host's network on a containerd on the disk: by bare CRI
// calls with fixed numbers of pods at a time, by kdiag syncloop, and by a kubelet. The last two have the same
// configuration and get the same manifests: once before their process starts, which counts from there, and once when
// they have settled without any. A time ends when CRI lists all containers as running. It is done three times. Run with
// -benchtime 1x.
func BenchmarkPods(b *testing.B) {
	if missing := nodebox.Missing(false); missing != "" {
		b.Skip(missing)
	}
	c, err := nodebox.Start(b.Context(), nodebox.Options{Network: true})
	must(b, err)
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	client := dialCRI(b, c.Endpoint())
	const pods, rounds = 100, 3
	type way struct {
		name string
		run  func(b *testing.B)
	}
	var ways []way
	for _, parallel := range []int{4, 8, 16, 32, 100} {
		ways = append(ways, way{fmt.Sprintf("bare-%d", parallel), func(b *testing.B) {
			took := untilRunning(b, client, pods, func() error {
				_, err := c.RunPods(b.Context(),
					nodebox.Pods{Count: pods, Containers: 1, State: crictl.ContainerRunning, Parallel: parallel})
				return err
			})
			b.ReportMetric(took.Seconds(), "s-to-running")
			removePods(b, client)
		}})
	}
	for _, k := range []struct{ name, program string }{
		{"syncloop", os.Getenv("KDIAG")}, {"kubelet", os.Getenv("KUBELET")},
	} {
		if k.program != "" {
			ways = append(ways,
				way{k.name + "-start", func(b *testing.B) {
					benchKubelet(b, newKubelet(b, k.program, k.name, c.Endpoint()), client, pods, false)
				}},
				way{k.name + "-appear", func(b *testing.B) {
					benchKubelet(b, newKubelet(b, k.program, k.name, c.Endpoint()), client, pods, true)
				}})
		}
	}
	// Round by round: a disk has better and worse minutes, and all shall have both.
	for round := range rounds {
		for _, w := range ways {
			b.Run(fmt.Sprintf("%s/%d", w.name, round+1), func(b *testing.B) {
				for b.Loop() {
					w.run(b)
				}
			})
		}
	}
}

// benchKubelet runs pods by a syncLoop or a kubelet and reports the time, the memory, the CPU time until rest and how
// long it takes to remove all.
func benchKubelet(b *testing.B, k *kubelet, client *crictl.Client, pods int, appear bool) {
	begin := k.start
	if appear {
		must(b, k.start())
		k.awaitHealthy(b)
		time.Sleep(settled)
		begin = func() error { return k.addPods(pods, 1) }
	} else {
		must(b, k.addPods(pods, 1))
	}
	took := untilRunning(b, client, pods, begin)
	time.Sleep(restAfter)
	b.ReportMetric(took.Seconds(), "s-to-running")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
	must(b, err)
	for _, m := range []struct{ field, unit string }{
		{"VmHWM:", "peak-MB"}, {"VmRSS:", "rest-MB"}, {"RssAnon:", "rest-anon-MB"},
	} {
		var kib float64
		_, value, _ := strings.Cut(string(status), m.field)
		_, err := fmt.Sscan(value, &kib)
		must(b, err)
		b.ReportMetric(kib*1024/1e6, m.unit)
	}
	must(b, k.stop())
	b.ReportMetric((k.cmd.ProcessState.UserTime() + k.cmd.ProcessState.SystemTime()).Seconds(), "cpu-s")
	start := time.Now()
	k.removePods(b, client)
	b.ReportMetric(time.Since(start).Seconds(), "s-to-clean")
}

// BenchmarkIdleRelist makes 200 relists of 500 pods with 1,000 containers in which nothing changes, and reports this
// process's CPU time for each: lists, decoding, comparison, metrics and garbage collection, in user and in kernel mode.
// The runtime is the embedded one in another process, whose CPU time does not count. A syncLoop has made the pods
// there, so that each entry has the labels and annotations of a real one. The relists follow each other without the
// pause of a second, so that caches are warmer than in life. Run with -benchtime 1x.
func BenchmarkIdleRelist(b *testing.B) {
	const pods, each, relists = 500, 2, 200
	kdiag := os.Getenv("KDIAG")
	if kdiag == "" {
		b.Skip("KDIAG names no program to measure")
	}
	dir := b.TempDir()
	endpoint, scenario := "unix://"+dir+"/cri.sock", dir+"/idle.yaml"
	idle := []byte("name: idle\nsummary: nothing runs yet\nimages: [" + nodebox.ImageBusybox + "]\n")
	must(b, os.WriteFile(scenario, idle, 0o644))
	runtime := exec.CommandContext(b.Context(), kdiag, "runtime", "serve", "--simulate", scenario, "--listen", endpoint)
	must(b, runtime.Start())
	b.Cleanup(func() { _ = runtime.Wait() }) // killed
	client := dialCRI(b, endpoint)
	loop := newKubelet(b, kdiag, "syncloop", endpoint)
	must(b, loop.addPods(pods, each))
	for !client.ListImages(b.Context()).OK() {
		time.Sleep(lookEvery)
	}
	untilRunning(b, client, pods*each, loop.start)
	must(b, loop.stop())

	m := metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry())
	service, err := remote.Dial(endpoint, remote.Options{Log: logr.Discard(), Observe: m.Observe})
	must(b, err)
	defer service.Close()
	manager := kuberuntime.New(kuberuntime.Config{
		CRI: service, NodeName: "bench", RuntimeName: "containerd", Log: logr.Discard(), Metrics: m,
	})
	generic := pleg.NewGeneric(pleg.GenericConfig{
		Runtime: manager, Cache: pleg.NewCache(), Log: logr.Discard(), Metrics: m,
	})
	generic.Relist(b.Context()) // inspects all
	events := len(generic.Events())
	b.ReportAllocs()
	for b.Loop() {
		before := cpuTime(b)
		start := time.Now()
		for range relists {
			generic.Relist(b.Context())
		}
		b.ReportMetric(time.Since(start).Seconds()*1000/relists, "ms/relist")
		b.ReportMetric((cpuTime(b)-before).Seconds()*1000/relists, "cpu-ms/relist")
	}
	if s := generic.Snapshot(); events == 0 || s.Failures > 0 || len(generic.Events()) != events {
		b.Fatalf("not idle: %+v, %d events after the first relist's %d", s, len(generic.Events()), events)
	}
	loop.removePods(b, client)
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// untilRunning begins what makes containers run and returns how long it took until CRI listed them all.
func untilRunning(b *testing.B, client *crictl.Client, want int, begin func() error) time.Duration {
	b.Helper()
	begun := make(chan error, 1)
	start := time.Now()
	go func() { begun <- begin() }()
	running := crictl.ContainerRunning
	for {
		got := len(client.ListContainers(b.Context(), crictl.Filter{State: &running}, crictl.ModeUnary).Containers)
		if took := time.Since(start); got >= want {
			must(b, <-begun)
			return took
		} else if took > allRunIn {
			b.Fatalf("%d of %d containers run after %v", got, want, allRunIn)
		}
		time.Sleep(lookEvery)
	}
}

// removePods removes all pods, whoever made them.
func removePods(b *testing.B, client *crictl.Client) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for _, s := range client.ListPodSandbox(b.Context(), crictl.Filter{}, "").Sandboxes {
		g.Go(func() error {
			stop, remove := client.StopPodSandbox(b.Context(), s.ID), client.RemovePodSandbox(b.Context(), s.ID)
			if !stop.OK() || !remove.OK() {
				return fmt.Errorf("%+v %+v", stop, remove)
			}
			return nil
		})
	}
	must(b, g.Wait())
}

func dialCRI(b *testing.B, endpoint string) *crictl.Client {
	b.Helper()
	client, err := crictl.Dial(endpoint, crictl.Options{RPCTimeout: time.Minute})
	must(b, err)
	b.Cleanup(func() { _ = client.Close() }) // nothing was written
	return client
}

// A kubelet is a syncLoop or a kubelet with its folder.
type kubelet struct {
	dir     string
	args    []string
	cleanup []string // program and arguments that remove what it left; a kubelet has none
	health  int32    // port
	cmd     *exec.Cmd
}

// newKubelet prepares a kubelet that runs without an API server, on any cgroups, beside others.
func newKubelet(b *testing.B, program, name, endpoint string) *kubelet {
	b.Helper()
	k := &kubelet{dir: b.TempDir()}
	for _, dir := range []string{"manifests", "root", "log"} {
		must(b, os.Mkdir(filepath.Join(k.dir, dir), 0o755))
	}
	port, healthz := freePort(b), freePort(b)
	config, root := k.dir+"/kubelet.yaml", k.dir+"/root"
	must(b, os.WriteFile(config, fmt.Appendf(nil, `---
{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration,
containerRuntimeEndpoint: "%[4]s", staticPodPath: %[1]s/manifests, podLogsDir: %[1]s/log/pods,
volumePluginDir: %[1]s/root/plugins, resolvConf: "", maxPods: 1000, address: 127.0.0.1, port: %[2]d,
healthzPort: %[3]d, authentication: {webhook: {enabled: false}}, authorization: {mode: AlwaysAllow},
makeIPTablesUtilChains: false, cgroupsPerQOS: false, enforceNodeAllocatable: [], failCgroupV1: false,
failSwapOn: false, oomScoreAdj: 0, imageGCHighThresholdPercent: 100,
evictionHard: {memory.available: 50Mi, nodefs.available: "1%%", imagefs.available: "1%%"}}`,
		k.dir, port, healthz, endpoint), 0o644))
	if name == "syncloop" {
		own := []string{
			program, "syncloop", "--runtime-endpoint", endpoint, "--node-name", "bench", "--root-dir", root,
			"--log-dir", k.dir + "/log",
		}
		k.cleanup = slices.Concat(own, []string{"--cleanup"})
		k.args = slices.Concat(own, []string{"--config", config, "--manifests", k.dir + "/manifests"})
		k.health = port
	} else {
		k.args = []string{
			program, "--config", config, "--hostname-override", "bench", "--root-dir", root,
			"--cert-dir", root + "/pki", "-v", "2",
		}
		k.health = healthz
		keepHost(b, root)
	}
	b.Cleanup(func() {
		if b.Failed() {
			log, _ := os.ReadFile(k.dir + "/log/kubelet.log")
			b.Logf("the end of the log:\n%s", log[max(0, len(log)-2000):])
		}
		_ = k.stop() // has been, unless the benchmark failed
	})
	return k
}

// keepHost has put back what a kubelet does to its host: it sets sysctls, mounts its folder on itself and leaves links
// to logs.
func keepHost(b *testing.B, root string) {
	for _, name := range []string{"kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory"} {
		value, err := os.ReadFile("/proc/sys/" + name)
		must(b, err)
		b.Cleanup(func() { must(b, os.WriteFile("/proc/sys/"+name, value, 0o644)) })
	}
	b.Cleanup(func() {
		_ = unix.Unmount(root, 0) // some do not mount it
		links, _ := filepath.Glob("/var/log/containers/*_default_c0-*.log")
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, filepath.Dir(root)) {
				must(b, os.Remove(link))
			}
		}
	})
}

// addPods makes each manifest beside their folder and moves it there, so that none is read half.
func (k *kubelet) addPods(pods, containers int) error {
	var problems []error
	for i := range pods {
		m := fmt.Appendf(nil,
			"---\n{apiVersion: v1, kind: Pod, metadata: {name: p%d}, spec: {hostNetwork: true, containers: [", i)
		for c := range containers {
			m = fmt.Appendf(m, "{name: c%d, image: %q, imagePullPolicy: Never, command: [/bin/sleep, '2147483647']},",
				c, nodebox.ImageBusybox)
		}
		name := fmt.Sprintf("%s/%d.yaml", k.dir, i)
		problems = append(problems, os.WriteFile(name, append(m, "]}}"...), 0o644),
			os.Rename(name, fmt.Sprintf("%s/manifests/%d.yaml", k.dir, i)))
	}
	return errors.Join(problems...)
}

// start starts the process, whose log is a file.
func (k *kubelet) start() error {
	log, err := os.Create(k.dir + "/log/kubelet.log")
	if err != nil {
		return err
	}
	defer log.Close()
	k.cmd = exec.Command(k.args[0], k.args[1:]...)
	k.cmd.Stdout, k.cmd.Stderr = log, log
	return k.cmd.Start()
}

// stop ends the process. What it runs runs on.
func (k *kubelet) stop() error {
	if k.cmd == nil || k.cmd.ProcessState != nil {
		return nil
	}
	if err := k.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return k.cmd.Wait()
}

func (k *kubelet) awaitHealthy(b *testing.B) {
	for ok := false; !ok; time.Sleep(lookEvery) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", k.health))
		if ok = err == nil && resp.StatusCode == http.StatusOK; err == nil {
			resp.Body.Close()
		}
		must(b, b.Context().Err())
	}
}

// removePods removes what the kubelet left.
func (k *kubelet) removePods(b *testing.B, client *crictl.Client) {
	if k.cleanup == nil {
		removePods(b, client)
	} else {
		out, err := exec.CommandContext(b.Context(), k.cleanup[0], k.cleanup[1:]...).CombinedOutput()
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	if left := client.ListPodSandbox(b.Context(), crictl.Filter{}, ""); !left.Complete || len(left.Sandboxes) > 0 {
		b.Fatalf("%d pods are left", len(left.Sandboxes))
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
