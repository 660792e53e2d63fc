//go:build e2e

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndPodFaults breaks what belongs to the pods of a healthy containerd, and what is mounted around them.
func TestEndToEndPodFaults(t *testing.T) {
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	volumes := "/var/lib/kubelet/pods/" + r.Pods[1].Config.Metadata.Uid + "/volumes"
	volume := volumes + "/kubernetes.io~csi/data/mount"
	const cloud = "/home/somebody/cloud"
	r.CheckFile(t, "pods.yaml", map[string]e2etest.Maker{
		"a stopped shim":                            r.freezeShim,
		"a list held by a stopped shim":             r.wedge,
		"a frozen container under cgroup version 2": r.freezeUnified,
		"a short wait in the kernel":                r.waitInKernel,
		"a locked memory map":                       r.lockMap,
		"no inotify instances are left":             takeInotify,
		"a volume under another mount":              hideVolume(volumes, volume),
		"a dead volume of a pod":                    r.deadVolume(volume),
		"a dead volume and a stopped daemon": func(t *testing.T, at *place) {
			r.deadVolume(volume)(t, at)
			r.pause(t, at)
		},
		"a dead mount of a user":                           mounted(cloud, 0),
		"a slow mount of a user":                           mounted(cloud, 2*time.Second),
		"a dead mount that only a container sees":          r.deadInside,
		"another containerd, stopped, with a stopped shim": others,
	}, "${VOLUME}", volume, "${CLOUD}", cloud)
}

// freezeShim stops the shim of the second pod.
func (r rig) freezeShim(t *testing.T, at *place) {
	e2etest.Must(t, r.FreezeShim(t.Context(), r.Pods[1].ID))
	t.Cleanup(func() { e2etest.Must(t, r.ThawShim(r.Pods[1].ID)) })
	at.Culprit = r.SecondShim(t)
}

// wedge has the lists wait for a stopped shim, while a process of its container waits too, which is no cause.
func (r rig) wedge(t *testing.T, at *place) {
	release, err := r.Wedge(t.Context(), r.Pods[1].ID, r.Pods[1].Containers[0].ID)
	e2etest.Must(t, err)
	t.Cleanup(func() { e2etest.Must(t, release()) })
	r.waitInKernel(t, at)
	at.Culprit = r.SecondShim(t)
}

// onUnified runs a command where cgroup version 2 alone is mounted, in its usual place, with a frozen group of the
// container $1 in it.
const onUnified = `
	set -e
	umount -R /sys/fs/cgroup
	mount -t cgroup2 none /sys/fs/cgroup
	pod=/sys/fs/cgroup/$0/kubepods/pod33333333-3333-4333-8333-333333333333
	container=$pod/$1
	shift
	mkdir -p $container
	sleep 1000 & sleeper=$!
	trap 'code=$?; kill -9 $sleeper; wait
		rmdir $container $pod /sys/fs/cgroup/$0/kubepods /sys/fs/cgroup/$0; exit $code' EXIT
	echo $sleeper > $container/cgroup.procs
	echo 1 > $container/cgroup.freeze
	until grep -q "frozen 1" $container/cgroup.events; do sleep 0.1; done
	set +e
	"$@"`

func (r rig) freezeUnified(_ *testing.T, at *place) {
	id := r.Pods[1].Containers[0].ID
	at.Inside = []string{
		"unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", onUnified,
		"e2e-" + filepath.Base(r.Dir()), id,
	}
	at.Culprit = "/e2e-" + filepath.Base(r.Dir()) + "/kubepods/pod33333333-3333-4333-8333-333333333333/" + id
}

// takeInotify holds inotify instances, and shows kdiag alone a limit of as many: others on this machine need some too.
func takeInotify(t *testing.T, at *place) {
	const held = 20
	for range held {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		e2etest.Must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
	}
	limit := filepath.Join(t.TempDir(), "limit")
	e2etest.Must(t, os.WriteFile(limit, []byte(strconv.Itoa(held)+"\n"), 0o644))
	at.Inside = e2etest.InMounts("mount --bind " + limit + " /proc/sys/fs/inotify/max_user_instances")
	at.Culprit = strconv.Itoa(os.Getpid())
}

func hideVolume(volumes, volume string) e2etest.Maker {
	return func(_ *testing.T, at *place) {
		at.Inside = e2etest.InMounts("mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet && mkdir -p " +
			volume + " && mount -t tmpfs none " + volume + " && mount -t tmpfs none " + volumes)
	}
}

// mounted mounts a file system that answers after a time, or never, in a mount namespace that only kdiag sees.
func mounted(point string, delay time.Duration) e2etest.Maker {
	return func(t *testing.T, at *place) {
		mountFuse(t, at, point, delay)
	}
}

// mountFuse returns the server of such a mount. The kubelet's folder is another one in there, so that nothing of the
// machine's is touched.
func mountFuse(t *testing.T, at *place, point string, delay time.Duration) *nodebox.DeadFuse {
	t.Helper()
	fuse := nodebox.OpenDeadFuse(t)
	fuse.Delay = delay
	mounter := exec.Command("unshare", "-m", "/bin/sh", "-c",
		`mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet && mkdir -p "$1" &&
		mount -i -t fuse -o "$2" dead.example:/bucket "$1" && exec 3>&- && echo up && exec sleep 1000`,
		"sh", point, fuse.Options(3))
	mounter.ExtraFiles = []*os.File{fuse.Dev}
	e2etest.StartUntilUp(t, mounter)
	at.Inside = []string{"nsenter", "-t", strconv.Itoa(mounter.Process.Pid), "-m", "--"}
	enter := slices.Clone(at.Inside)
	t.Cleanup(func() { // all that wait get an error, and end
		_ = exec.Command(enter[0], append(enter[1:], "umount", "-c", "-f", point)...).Run() // it may be gone
		_ = fuse.Dev.Close()
		e2etest.Eventually(t, "no child of kdiag's is left", func() bool { return e2etest.ProbesIn(point) == 0 })
	})
	go fuse.Serve()
	return fuse
}

// deadVolume mounts a dead volume of the second pod, with a process of its container that waits in it.
func (r rig) deadVolume(point string) e2etest.Maker {
	return func(t *testing.T, at *place) {
		reader := exec.Command("true")
		t.Cleanup(func() { _ = reader.Wait() }) // when the mount is cut
		fuse := mountFuse(t, at, point, 0)
		reader = exec.Command(at.Inside[0], append(at.Inside[1:], "/bin/busybox", "sh", "-c",
			"echo $$ > "+e2etest.Cgroup(t, "freezer", r.Group)+"/cgroup.procs; exec busybox stat "+point)...)
		e2etest.Must(t, reader.Start())
		// It sleeps interruptibly until a signal comes, as that of a pod's end does, and then, if the server has its
		// request, until that answers.
		e2etest.Eventually(t, "a process in the dead mount", func() bool {
			return e2etest.ThreadHas(reader.Process.Pid, "stack", "request_wait_answer") && fuse.Held.Load() > 0
		})
		e2etest.Must(t, reader.Process.Kill())
		e2etest.Eventually(t, "the process in uninterruptible sleep", func() bool {
			return e2etest.ThreadHas(reader.Process.Pid, "stat", ") D ")
		})
	}
}

// deadInside mounts a dead file system in the second pod's container.
func (r rig) deadInside(t *testing.T, _ *place) {
	procs := e2etest.Read(t, filepath.Join(e2etest.Cgroup(t, "freezer", r.Group), "cgroup.procs"))
	inside := func(command string) *exec.Cmd {
		first := strings.Fields(procs)[0]
		return exec.Command("nsenter", "-t", first, "-m", "/bin/busybox", "sh", "-c", command)
	}
	fuse := nodebox.OpenDeadFuse(t)
	t.Cleanup(func() {
		// The first cuts the connection, and kdiag's child may still be there.
		_ = inside("busybox umount -f /cloud; busybox umount -l /cloud").Run()
		_ = fuse.Dev.Close()
	})
	mount := inside("busybox mkdir -p /cloud && busybox mount -i -t fuse -o " + fuse.Options(3) +
		" dead.example:/bucket /cloud")
	mount.ExtraFiles = []*os.File{fuse.Dev}
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	go fuse.Serve()
}

// others stops another containerd, and a shim of it.
func others(t *testing.T, at *place) {
	other := nodebox.Start(t, nodebox.Options{})
	pod := other.RunPods(t, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})[0]
	e2etest.Must(t, other.FreezeShim(t.Context(), pod.ID))
	e2etest.Must(t, other.Pause(t.Context()))
	pid, err := other.Shim(pod.ID)
	e2etest.Must(t, err)
	at.Culprit = strconv.Itoa(pid)
}
