//go:build e2e

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// TestEndToEndPodsThatDoNotStart breaks what pods need to start, while no call hangs. The errors are those of the
// runtime, in the records that a kubelet 1.36 writes about them.
func TestEndToEndPodsThatDoNotStart(t *testing.T) {
	r := rig{e2etest.StartRig(t, nodebox.Options{})}
	snapshots := filepath.Join(r.Dir(), "root", "io.containerd.snapshotter.v1.overlayfs", "snapshots")
	failing := func(breaks e2etest.Maker) e2etest.Maker {
		return func(t *testing.T, at *place) {
			breaks(t, at)
			_, err := r.Run(t.Context(), nodebox.Pods{
				Count: 1, Containers: 1, State: crictl.ContainerRunning, Prefix: "late", PodNetwork: true,
			})
			if err == nil {
				t.Fatal("the pod starts")
			}
			_, words, _ := strings.Cut(err.Error(), "desc = ")
			kubeletLogs(t, at, noSandbox, "rpc error: code = Unknown desc = "+words, "box/late-0", "box/late-1")
		}
	}
	// hanging has a call about a pod's container miss its deadline.
	hanging := func(name, message string, state crictl.ContainerState, breaks func(*testing.T, nodebox.Pod),
		call func(*remote.Service, string) error,
	) e2etest.Maker {
		return func(t *testing.T, at *place) {
			pods, err := r.Run(t.Context(), nodebox.Pods{
				Count: 1, Containers: 1, State: state, Prefix: name, LogDirectory: filepath.Join(t.TempDir(), "pods"),
			})
			e2etest.Must(t, err)
			cri, err := remote.Dial(r.Endpoint(), remote.Options{Timeout: 2 * time.Second})
			e2etest.Must(t, err)
			t.Cleanup(func() { _ = cri.Close() })
			breaks(t, pods[0])
			err = call(cri, pods[0].Containers[0].ID)
			if err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") {
				t.Fatalf("the call ends: %v", err)
			}
			kubeletLogs(t, at, message, err.Error(), "box/"+name+"-0")
		}
	}
	r.CheckFile(t, "effects.yaml", map[string]e2etest.Maker{
		"a layer of an image is gone": failing(e2etest.Shell("for f in "+snapshots+"/*/fs; do mv $f $f.away; done",
			"for f in "+snapshots+"/*/fs.away; do mv $f ${f%.away}; done")),
		"every address is in use": failing(r.exhaustAddresses),
		"a FIFO in the place of a container's log": hanging("fifo", `"Error syncing pod, skipping"`,
			crictl.ContainerCreated, func(t *testing.T, pod nodebox.Pod) {
				log := filepath.Join(pod.Config.LogDirectory, pod.Containers[0].Config.LogPath)
				e2etest.Must(t, os.MkdirAll(filepath.Dir(log), 0o755))
				e2etest.Must(t, unix.Mkfifo(log, 0o600))
				t.Cleanup(func() {
					f, err := os.OpenFile(log, os.O_RDONLY|unix.O_NONBLOCK, 0)
					e2etest.Must(t, err)
					e2etest.Must(t, f.Close())
				})
			}, func(cri *remote.Service, id string) error { return cri.StartContainer(t.Context(), id) }),
		"runc's state folder is removed": hanging("stay", `"Kill container failed"`, crictl.ContainerRunning,
			func(t *testing.T, _ nodebox.Pod) {
				state := filepath.Join(r.Dir(), "runc")
				e2etest.Shell("mv "+state+" "+state+".away", "rm -rf "+state+"; mv "+state+".away "+state)(t, nil)
			}, func(cri *remote.Service, id string) error { return cri.StopContainer(t.Context(), id, 0) }),
	})
	r.CheckControls(t, []fault{
		{Name: "a pod that starts after two minutes of errors", Make: func(t *testing.T, at *place) {
			kubeletLogs(t, at, noSandbox, "rpc error: code = Unknown desc = failed to setup network for sandbox", "box/again-0")
			_, err := r.Run(t.Context(), nodebox.Pods{
				Count: 1, Containers: 1, State: crictl.ContainerRunning, Prefix: "again",
			})
			e2etest.Must(t, err)
		}},
		{Name: "a pod whose command is not in its image", Make: func(t *testing.T, at *place) {
			kubeletLogs(t, at, noSandbox, `failed to create containerd task: failed to create shim task: OCI runtime create failed: `+
				`runc create failed: unable to start container process: exec: "/nosuch": stat /nosuch: no such file or directory`,
				"box/pod-0", "box/pod-1")
		}},
	})
}

// exhaustAddresses has the network's plugin ask host-local for an address of a range in which none is free.
func (r rig) exhaustAddresses(t *testing.T, _ *place) {
	plugin, data := filepath.Join(r.Dir(), "cni", "bin", "bridge"), t.TempDir()
	stub := e2etest.Read(t, plugin)
	t.Cleanup(func() { e2etest.Must(t, os.WriteFile(plugin, []byte(stub), 0o755)) })
	e2etest.Must(t, os.Mkdir(filepath.Join(data, "range"), 0o755))
	e2etest.Must(t, os.WriteFile(filepath.Join(data, "range", "10.99.0.2"), []byte("other\r\neth0"), 0o644))
	e2etest.Must(t, os.WriteFile(plugin, fmt.Appendf(nil, `#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exit 0
exec /usr/lib/cni/host-local <<EOT
{"cniVersion":"0.4.0","name":"range","type":"bridge",
 "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.99.0.0/30"}]]}}
EOT
`, data), 0o755))
}

// noSandbox is the record of a kubelet that could not make a sandbox.
const noSandbox = `"CreatePodSandbox for pod failed"`

// kubeletLogs shows kdiag the log of a kubelet that has failed for each pod for two minutes, every twelve seconds,
// until now.
func kubeletLogs(t *testing.T, at *place, message, words string, pods ...string) {
	t.Helper()
	dir := t.TempDir()
	var log strings.Builder
	for back := 2 * time.Minute; back >= 0; back -= 12 * time.Second {
		for _, pod := range pods {
			fmt.Fprintf(&log, "E%s      41 kuberuntime_manager.go:1614] %s err=%q pod=%q\n",
				time.Now().Add(-back).UTC().Format("0102 15:04:05.000000"), message, words, pod)
		}
	}
	e2etest.Must(t, os.WriteFile(filepath.Join(dir, "kubelet.log"), []byte(log.String()), 0o644))
	at.Inside = e2etest.InMounts("mount --bind " + dir + " /var/log")
}
