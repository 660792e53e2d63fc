package syncloop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
)

// A CleanupConfig selects the remains of syncLoops with one node name.
type CleanupConfig struct {
	Endpoint        string
	NodeName        string
	RootDir, LogDir string
	Timeout         time.Duration // of a call, and of the attempts to remove a sandbox; 0 means 30 s
	// Dialer connects to a runtime in this process; nil: none.
	Dialer func(ctx context.Context, socket string) (net.Conn, error)
}

// Cleaned counts the removed objects.
type Cleaned struct {
	Sandboxes, Containers int
	Folders               []string // RootDir and LogDir, if they were removed
}

// Cleanup stops and removes the sandboxes and containers with the node's name, unmounts and removes its volumes, and
// removes its folders of pods and logs, and their cgroups. It continues after errors, and returns all of them.
func Cleanup(ctx context.Context, cfg CleanupConfig) (Cleaned, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	var done Cleaned
	service, err := remote.Dial(cfg.Endpoint, remote.Options{
		Timeout: cfg.Timeout, Log: logr.Discard(), Dialer: cfg.Dialer,
	})
	if err != nil {
		return done, err
	}
	label := map[string]string{container.OwnerLabel: cfg.NodeName}
	containers, listErr := service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: label})
	sandboxes, err := service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: label})
	if listErr != nil && err != nil {
		err := fmt.Errorf("listing what node %s has on %s: %w", cfg.NodeName, cfg.Endpoint, listErr)
		return done, errors.Join(err, service.Close())
	}
	problems := []error{listErr, err}
	done.Sandboxes, err = removeSandboxes(ctx, service, cfg.Timeout, sandboxes)
	problems = append(problems, err)
	for _, c := range containers { // most went with their sandbox
		if err := service.RemoveContainer(ctx, c.GetId()); err != nil && !remote.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("removing container %s: %w", c.GetId(), err))
			continue
		}
		done.Containers++
	}
	if errors.Join(problems...) == nil {
		done.Folders, err = removeFolders(ctx, cfg)
		problems = append(problems, err)
	}
	return done, errors.Join(append(problems, service.Close())...)
}

// atOnce is how many sandboxes are removed at a time: stopping one waits for processes to end.
const atOnce = 8

// attemptPause is the pause between two attempts to remove a sandbox. Some runtimes fail to stop a container that is
// just ending (containerd 1.6: "ttrpc: closed"), or to remove one that is being started or removed.
const attemptPause = 200 * time.Millisecond

func removeSandbox(ctx context.Context, service *remote.Service, id string) error {
	if err := service.StopPodSandbox(ctx, id); err != nil && !remote.IsNotFound(err) {
		return fmt.Errorf("stopping sandbox %s: %w", id, err)
	}
	if err := service.RemovePodSandbox(ctx, id); err != nil && !remote.IsNotFound(err) {
		return fmt.Errorf("removing sandbox %s: %w", id, err)
	}
	return nil
}

// removeSandboxes stops and removes sandboxes and returns how many it removed. within bounds the attempts for each.
func removeSandboxes(
	ctx context.Context, service *remote.Service, within time.Duration, sandboxes []*runtimeapi.PodSandbox,
) (int, error) {
	problems := make([]error, len(sandboxes))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, s := range sandboxes {
		g.Go(func() error {
			return wait.PollUntilContextTimeout(ctx, attemptPause, within, true, func(context.Context) (bool, error) {
				problems[i] = removeSandbox(ctx, service, s.GetId())
				return problems[i] == nil, nil
			})
		})
	}
	_ = g.Wait() // the errors of the last attempts are in problems
	failed := slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	return len(sandboxes) - len(failed), errors.Join(failed...)
}

// removeFolders removes the pods' cgroups, the files of the parts below the two folders, and the folders themselves if
// they are empty then. It returns the removed folders.
func removeFolders(ctx context.Context, cfg CleanupConfig) (removed []string, err error) {
	volumes := volumemanager.New(volumemanager.Config{
		RootDir: cfg.RootDir, NodeName: cfg.NodeName, Log: logr.Discard(),
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	stop := func(slice string) error { return stopSlice(ctx, slice) }
	err = errors.Join(forgetCgroups(cgroupMount, cfg.RootDir, stop), volumes.CleanupOrphans(nil))
	if len(volumes.PodDirs()) == 0 {
		err = errors.Join(err, removeLogs(cfg.LogDir, cfg.NodeName))
	}
	_ = os.Remove(filepath.Join(cfg.RootDir, "pods")) // unless something else is in it
	err = errors.Join(err, os.RemoveAll(filepath.Join(cfg.RootDir, pkiDir)))
	for _, dir := range []string{cfg.LogDir, cfg.RootDir} {
		if os.Remove(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed, err
}

// cgroupMount is where the cgroups are mounted: version 2 itself, or a folder for each hierarchy of version 1.
const cgroupMount = "/sys/fs/cgroup"

// cgroupParent is a pod's cgroup in the form of CRI's cgroup_parent: below kubepods, and below the cgroup of its class
// if that is not Guaranteed. For systemd it is the name of a slice, which contains those above it (pkg/kubelet/cm
// upstream). root is the kubelet's --cgroup-root. On a node with a kubelet it must not be the kubelet's, which kills
// all pods below its root that it does not know. Without a UID it is the cgroup of all pods.
func cgroupParent(root string, systemd bool, class v1.PodQOSClass, uid types.UID) string {
	parts := append(strings.FieldsFunc(root, func(r rune) bool { return r == '/' }), "kubepods")
	if uid != "" {
		if class != v1.PodQOSGuaranteed {
			parts = append(parts, strings.ToLower(string(class)))
		}
		parts = append(parts, "pod"+string(uid))
	}
	if !systemd {
		return "/" + strings.Join(parts, "/")
	}
	for i, part := range parts { // a dash separates a slice from the one above it
		parts[i] = strings.ReplaceAll(strings.TrimSuffix(part, ".slice"), "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

func (s *SyncLoop) cgroupParent(p *v1.Pod) string {
	k := s.cfg.Kubelet
	return cgroupParent(k.CgroupRoot, k.CgroupDriver == "systemd", pod.QOSClass(p), p.UID)
}

// removeCgroups removes the cgroups of a pod that has ended, which runtimes leave behind.
func (s *SyncLoop) removeCgroups(ctx context.Context, p *v1.Pod) {
	parent := s.cgroupParent(p)
	if s.cfg.Kubelet.CgroupDriver == "systemd" {
		if err := stopSlice(ctx, parent); err != nil {
			s.log.Error(err, "Failed to stop the pod's slice", "pod", klog.KObj(p), "podUID", p.UID)
		}
	}
	removeTrees(cgroupMount, cgroupPath(parent))
	s.log.V(4).Info("Pod termination removed cgroups", "podUID", p.UID)
}

// sliceEndsWithin bounds the time in which systemd stops a slice whose processes have ended.
const sliceEndsWithin = 5 * time.Second

// stopSlice has systemd stop a slice and what is in it. A slice that is only removed from the file system stays loaded,
// and its cgroups come back with the next unit beside it. Where systemd is not the service manager, or this is not
// root, there is nothing to stop.
func stopSlice(ctx context.Context, slice string) error {
	if _, err := os.Stat("/run/systemd/system"); err != nil || os.Geteuid() != 0 { // sd_booted(3)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sliceEndsWithin)
	defer cancel()
	stopped := make(chan string, 1)
	conn, err := systemd.NewWithContext(ctx)
	if err == nil {
		defer conn.Close()
		_, err = conn.StopUnitContext(ctx, slice, "replace", stopped)
	}
	if err != nil && strings.HasSuffix(err.Error(), "not loaded.") {
		return nil
	}
	if err == nil {
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return fmt.Errorf("stopping %s: %w", slice, err)
}

// cgroupRootFile is the file in the root directory with the cgroup root that was used last. Cleanup needs it, since it
// does not read the kubelet's configuration.
const cgroupRootFile = "io.kdiag.syncloop.cgroups"

// forgetCgroups removes the cgroups below the root on record, with their slices, and the file. At the top of the
// hierarchy kubepods may belong to a kubelet, and stays.
func forgetCgroups(mount, rootDir string, stop func(slice string) error) error {
	file := filepath.Join(rootDir, cgroupRootFile)
	root, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if filepath.Join("/", string(root)) != "/" {
		slice := cgroupParent(string(root), true, "", "")
		err = stop(slice)
		for _, pods := range []string{cgroupParent(string(root), false, "", ""), cgroupPath(slice)} {
			removeTrees(mount, pods)
			for _, h := range hierarchies(mount) {
				_ = os.Remove(filepath.Join(h, filepath.Dir(pods))) // unless something else is in it
			}
		}
		above := filepath.Dir(cgroupPath(slice))
		if !slices.ContainsFunc(hierarchies(mount), func(h string) bool {
			_, err := os.Stat(filepath.Join(h, above))
			return err == nil
		}) {
			err = errors.Join(err, stop(filepath.Base(above)))
		}
	}
	return errors.Join(err, os.Remove(file))
}

// removeTrees removes the empty folders at path and below it, the deepest first, in all hierarchies. The kernel refuses
// to remove a cgroup that is in use.
func removeTrees(mount, path string) {
	for _, h := range hierarchies(mount) {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(h, path), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // a folder that is gone needs no removal
		})
		for _, dir := range slices.Backward(dirs) {
			_ = os.Remove(dir)
		}
	}
}

// hierarchies returns the mount itself, for version 2, and all folders in it, for version 1.
func hierarchies(mount string) []string {
	below, _ := filepath.Glob(filepath.Join(mount, "*"))
	return append(below, mount)
}

// cgroupPath is the path of CRI's cgroup_parent: a path as it is, or the name of a systemd slice, which lies in those
// that its dashes name: kubepods-besteffort.slice in kubepods.slice.
func cgroupPath(parent string) string {
	if strings.Contains(parent, "/") {
		return parent
	}
	var path string
	for i, r := range parent {
		if r == '-' {
			path = filepath.Join(path, parent[:i]+".slice")
		}
	}
	return filepath.Join(path, parent)
}

// logMark is the file in the log folder with the name of the node that it belongs to. The collector removes the logs of
// pods that it does not know: the folder must be one node's alone.
const logMark = "io.kdiag.syncloop"

// ErrForeignLogs is for a log folder with the logs of another program, such as a real kubelet's /var/log.
var ErrForeignLogs = errors.New("it has logs of another program, which would be removed as left-overs")

// claimLogs makes the log folder this node's.
func claimLogs(dir, node string) error {
	switch owner, err := logOwner(dir); {
	case err != nil:
		return err
	case owner == node:
		return nil
	case owner != "":
		return fmt.Errorf("log folder %s: it belongs to node %s", dir, owner)
	}
	for _, name := range []string{"pods", "containers"} {
		if entries, _ := os.ReadDir(filepath.Join(dir, name)); len(entries) > 0 {
			return fmt.Errorf("log folder %s: %w", dir, ErrForeignLogs)
		}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, logMark), []byte(node+"\n"), 0o640)
}

// logOwner returns the node that owns the log folder, or "".
func logOwner(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, logMark))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// removeLogs removes the logs of a node, and leaves the logs of another node.
func removeLogs(dir, node string) error {
	if owner, err := logOwner(dir); err != nil || owner != node {
		return err
	}
	return errors.Join(
		os.RemoveAll(filepath.Join(dir, "pods")), os.RemoveAll(filepath.Join(dir, "containers")),
		os.Remove(filepath.Join(dir, logMark)))
}
