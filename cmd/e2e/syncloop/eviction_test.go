//go:build e2e

package syncloop

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

const (
	diskSize  = 64 << 20
	ballast   = 20 << 20
	low       = "The node was low on resource: "
	lowOnDisk = low + "ephemeral-storage. Threshold quantity: 32Mi, available: "
)

// The pods' volumes are on a small disk, which is filled. What is left of a pod that was evicted is not there any more.
func TestEndToEndEviction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		settings  func(k *kubeletconfig.Config)
		fill      func(t *testing.T, disk string) // once the pods run
		pods      []string
		evicted   map[string]string // messages begin so
		first     string            // is evicted first
		condition v1.NodeConditionType
		log       string
		over      bool // the condition ends when the ballast is gone
	}{
		{ // hog uses more than it asked for; then there is enough
			name: "a hard threshold",
			settings: func(k *kubeletconfig.Config) {
				k.EvictionHard = map[string]string{"nodefs.available": "32Mi"}
			},
			fill: fillDisk, pods: []string{"hog", "modest", "idle"}, condition: v1.NodeDiskPressure,
			evicted: map[string]string{"hog": lowOnDisk},
		},
		{ // without hog there is enough for the threshold, but not yet what is to be reclaimed
			name: "a soft threshold, and a minimum to reclaim",
			settings: func(k *kubeletconfig.Config) {
				soft := func(value string) map[string]string { return map[string]string{"nodefs.available": value} }
				k.EvictionSoft, k.EvictionSoftGracePeriod = soft("32Mi"), soft("2s")
				k.EvictionMinimumReclaim, k.EvictionMaxPodGracePeriod = soft("16Mi"), 2
				k.EvictionPressureTransitionPeriod.Duration = time.Second
			},
			fill: fillDisk, pods: []string{"hog", "modest", "idle"}, condition: v1.NodeDiskPressure, over: true,
			evicted: map[string]string{"hog": lowOnDisk, "modest": lowOnDisk, "idle": lowOnDisk}, first: "hog",
			log: "eviction criteria not yet met",
		},
		{
			name: "limits of pods", settings: func(*kubeletconfig.Config) {},
			pods: []string{"dir", "whole", "layer", "within"},
			evicted: map[string]string{
				"dir":   `Usage of EmptyDir volume "data" exceeds the limit "4Mi". `,
				"whole": "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
				"layer": `Container c exceeded its local ephemeral storage limit "4Mi". `,
			},
		},
		{ // the lower priority goes first
			name: "processes",
			settings: func(k *kubeletconfig.Config) {
				k.EvictionHard = map[string]string{"pid.available": strconv.Itoa(tasksLeft(t) - tasks/2)}
			},
			fill: fillTasks, pods: []string{"idle", "modest"}, condition: v1.NodePIDPressure, first: "modest",
			evicted: map[string]string{"modest": low + "pids. ", "idle": low + "pids. "},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, client, disk := newSmallNode(t, tt.settings, tt.name, tt.pods)
			n.start()
			if tt.fill != nil {
				n.awaitFigures(client, tt.pods)
				tt.fill(t, disk)
			}
			for _, name := range tt.pods {
				message, ends := tt.evicted[name]
				is := func(p *v1.Pod) bool { return p.Status.Reason == "Evicted" && p.Status.Phase == v1.PodFailed }
				if !ends {
					is = isReady
				}
				p := n.awaitBound(client, name, is)
				if ends && !strings.HasPrefix(p.Status.Message, message) {
					t.Errorf("%s: %q, want %q", name, p.Status.Message, message)
				}
			}
			if tt.condition != "" {
				n.awaitCondition(client, tt.condition, v1.ConditionTrue)
			}
			testkit.Contains(t, "first eviction", tt.first, n.log.Lines("pod is evicted successfully")[0])
			n.log.Has(t, tt.log)
			if tt.over {
				e2etest.Must(t, os.Remove(filepath.Join(disk, "ballast")))
				n.awaitCondition(client, tt.condition, v1.ConditionFalse)
			} else if _, rejects := tt.evicted["hog"]; rejects {
				n.checkPressure(client, disk)
			}
		})
	}
}

// checkPressure looks, after an eviction that gained enough room, whether a pod that comes is rejected, and the others
// stay.
func (n *node) checkPressure(client *fake.Client, disk string) {
	n.t.Helper()
	get := func(name string) *v1.Pod { return n.awaitBound(client, name, func(*v1.Pod) bool { return true }) }
	before := map[string]string{"modest": unharmed(get("modest")), "idle": unharmed(get("idle"))}
	e2etest.Eventually(n.t, "enough room again", func() bool {
		var fs unix.Statfs_t
		return unix.Statfs(disk, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= diskSize/2
	})
	if !hasCondition(get("hog"), v1.DisruptionTarget) {
		n.t.Errorf("no DisruptionTarget among %+v", get("hog").Status.Conditions)
	}
	late := podsOf(n.t, "eviction.yaml")[3]
	e2etest.Must(n.t, client.Create(n.t.Context(), late))
	n.awaitBound(client, "late", func(p *v1.Pod) bool {
		const message = "Pod was rejected: The node had condition: [DiskPressure]. "
		return p.Status.Phase == v1.PodFailed && p.Status.Message == message
	})
	after := map[string]string{"modest": unharmed(get("modest")), "idle": unharmed(get("idle"))}
	testkit.Equal(n.t, "the others", before, after)
}

// newSmallNode makes a node with a small disk, an API server in memory and some of the pods of eviction.yaml.
func newSmallNode(
	t *testing.T, settings func(*kubeletconfig.Config), name string, names []string,
) (n *node, client *fake.Client, disk string) {
	t.Helper()
	disk = t.TempDir()
	e2etest.Must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)))
	t.Cleanup(func() { e2etest.Must(t, unix.Unmount(disk, 0)) })
	n = newNode(t, 20)
	n.cfg.RootDir = filepath.Join(disk, "root")
	settings(n.cfg.Kubelet)
	client = fake.New(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: e2eNode, UID: "uid-node"}})
	for _, p := range podsOf(t, "eviction.yaml") {
		if slices.Contains(names, p.Name) {
			p.UID = types.UID("uid-" + p.Name)
			e2etest.Must(t, client.Create(t.Context(), p))
		}
	}
	n.cfg.Client, n.cfg.Register, n.cfg.Objects = client, true, ""
	return n, client, disk
}

func fillDisk(t *testing.T, disk string) {
	e2etest.Must(t, os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, ballast), 0o600))
}

// tasks is how many threads fillTasks starts.
const tasks = 2000

func fillTasks(t *testing.T, _ string) {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	for range tasks {
		go func() {
			runtime.LockOSThread() // without end: the thread ends with the goroutine
			<-end
		}()
	}
}

// tasksLeft is how many tasks the kernel would still start.
func tasksLeft(t *testing.T) int {
	number := func(file, format string, skipped ...any) (n int) {
		_, err := fmt.Sscanf(e2etest.Read(t, file), format, append(skipped, &n)...)
		e2etest.Must(t, err)
		return n
	}
	var load [3]float64
	var running int
	all := number("/proc/loadavg", "%f %f %f %d/%d", &load[0], &load[1], &load[2], &running)
	return min(number("/proc/sys/kernel/pid_max", "%d"), number("/proc/sys/kernel/threads-max", "%d")) - all
}

// awaitFigures waits until the pods are ready and their volumes are measured, which is done once a minute. Who was not
// measured yet goes first of all.
func (n *node) awaitFigures(client *fake.Client, names []string) {
	n.t.Helper()
	bytes := map[string]uint64{"hog": ballast, "modest": 1 << 20}
	for _, name := range names {
		n.awaitBound(client, name, isReady)
		n.await("the figures of "+name, func() error { return n.hasFigures("uid-"+name, bytes[name]) })
	}
}

// awaitBound polls until a pod of the API server is as wanted, and returns it; an empty one if there is none.
func (n *node) awaitBound(api kubernetes.Interface, name string, is func(p *v1.Pod) bool) (p *v1.Pod) {
	n.t.Helper()
	n.await(name+" at the API server", func() (err error) {
		p, err = api.CoreV1().Pods(namespace).Get(n.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			p, err = &v1.Pod{}, nil
		}
		if err == nil && !is(p) {
			err = fmt.Errorf("%s is %+v", name, p.Status)
		}
		return err
	})
	return p
}

func (n *node) awaitCondition(client *fake.Client, kind v1.NodeConditionType, is v1.ConditionStatus) {
	n.t.Helper()
	n.await(fmt.Sprintf("%s %s", kind, is), func() error {
		node := &v1.Node{}
		if err := client.Get(n.t.Context(), "", e2eNode, node); err != nil {
			return err
		}
		return nodeIs(node.Status.Conditions, kind, is)
	})
}

// unharmed is the container of a pod that runs and was never restarted, or else empty.
func unharmed(p *v1.Pod) string {
	if c := containerOf(p); p.Status.Phase == v1.PodRunning && c.RestartCount == 0 {
		return c.ContainerID
	}
	return ""
}

// hasFigures complains unless the server's summary has a volume of a pod with at least so many bytes.
func (n *node) hasFigures(uid string, bytes uint64) error {
	var s statsapi.Summary
	n.get("/stats/summary", &s)
	for _, p := range s.Pods {
		for _, v := range p.VolumeStats {
			if p.PodRef.UID == uid && v.UsedBytes != nil && *v.UsedBytes >= bytes {
				return nil
			}
		}
	}
	return fmt.Errorf("%+v", s.Pods)
}
