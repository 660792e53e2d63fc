package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

func TestServe(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	defer os.WriteFile("/proc/self/comm", comm, 0)
	var out strings.Builder
	dir := t.TempDir()
	must(t, os.Symlink("/", dir+"/link"))
	inner := fmt.Sprintf("/proc/%d/root%s", os.Getpid(), dir)
	if code := Serve([]string{verbMount, "/", dir, dir + "/none", inner, inner + "/link"}, &out); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var got []reply
	for dec := json.NewDecoder(strings.NewReader(out.String())); dec.More(); {
		var r reply
		must(t, dec.Decode(&r))
		got = append(got, r)
	}
	if len(got) != 5 || got[1].Err != "" || got[1].Size == 0 || got[2].Err != "no such file or directory" ||
		got[3].Err != "" || got[4].Err != "too many levels of symbolic links" {
		t.Errorf("wrote %+v", got)
	}
	if code := Serve([]string{"rm", "/", "/"}, &out); code == 0 {
		t.Error("it does more than it is for")
	}
}

func limited(t *testing.T) context.Context { return testkit.Within(t, time.Minute) }

// TestChild has a child look at a folder, at one that is absent and, for the time of its writes, at a file.
func TestChild(t *testing.T) {
	n := newNode(t)
	n.Write("data/file", "", "proc/1/mountinfo",
		"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / /gone rw - nfs4 filer:/x rw\n")
	folders := []Folder{{Path: "/data"}, {Path: "/gone"}}
	spaces, err := ReadSpaces(limited(t), n.Root, n.processes(), folders, testChild(t))
	must(t, err)
	if len(spaces) != 2 || spaces[0].Size < spaces[0].Free || spaces[0].Size == 0 {
		t.Fatalf("ReadSpaces = %+v", spaces)
	}
	spaces[0].Size, spaces[0].Free, spaces[0].Inodes, spaces[0].InodesFree = 0, 0, 0, 0
	equal(t, "spaces", []Space{
		{Folders: folders[:1], Mount: "/", Type: "ext4", Source: "/dev/sda1"},
		{Folders: folders[1:], Mount: "/gone", Type: "nfs4", Source: "filer:/x", Err: "no such file or directory"},
	}, spaces)
	table, err := ProbeMounts(limited(t), n.Root, n.processes(), "/var/lib/kubelet", testChild(t))
	must(t, err)
	equal(t, "mounts", []Mount{
		{Point: "/gone", Type: "nfs4", Source: "filer:/x", Network: true, Asked: true, Err: "no such file or directory"},
	}, table.Probed)
	for folder, want := range map[string]string{
		"/data": "", "/data/file": "not a directory", "/none": "there is no such folder",
	} {
		w, err := TimeWrites(limited(t), n.Root, n.processes(), Folder{Path: folder}, testChild(t))
		if err != nil || w.Err != want || w.Hung || (len(w.Times) > 0) != (want == "") {
			t.Errorf("TimeWrites(%s) = %+v, %v; want %q", folder, w, err, want)
		}
	}
	equal(t, "left behind", []string{"file"}, names(n.Root+"/data"))
	_, err = TimeWrites(limited(t), n.Root, n.processes(), folders[0], Child{})
	failed(t, "TimeWrites without a child", err, "no program")
}

// TestAskPeers has plugins that answer, one that accepts connections and never answers, files of some that are gone,
// and a configuration that names two of them.
func TestAskPeers(t *testing.T) {
	n := newNode(t)
	n.Write(
		"etc/containerd/config.toml", "imports = ['conf.d/*.toml']\ndisabled_plugins = ['x', \"cri\"]\n"+
			"[proxy_plugins]\n  [proxy_plugins.acme]\n"+
			"    type = \"snapshot\"\n    address = \"/run/acme.sock\"\n[plugins.x.containerd]\n  snapshotter = \"gone\"\n",
		"etc/containerd/conf.d/more.toml", "[proxy_plugins.\"gone\"]\naddress = 'unix:///run/gone.sock'\n"+
			"[proxy_plugins.well.exports]\naddress = \"/run/well.sock\"\n[grpc]\naddress = \"/run/none.sock\"\n",
		"proc/1/mountinfo", "", "run/containerd/s/file", "",
	)
	for name, answer := range map[string]string{
		"run/acme.sock": "", "run/well.sock": "x", "run/gone.sock": "gone",
		"k/device-plugins/gpu.sock": "", "k/device-plugins/kubelet.sock": "", "k/device-plugins/well.sock": "x",
		"k/plugins/csi.io/csi.sock": "", "k/plugins_registry/old.sock": "gone", "run/containerd/s/a": "",
		"run/containerd/s/b": "x", "run/containerd/s/c": "gone",
	} {
		listen(t, filepath.Join(n.Root, name), answer)
	}
	const daemon, shim = 5_000_001, 5_000_002 // which no process of this machine is
	n.process(daemon, 1, "containerd", 'S', "containerd")
	n.process(shim, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -id "+idA) // which inherited its socket
	n.Write(procFile(shim, "net/unix"), "0: 2 0 00010000 0001 01 77 /run/containerd/s/a\n0: 2 0 00010000 0001 01 78 /run/b\n")
	n.Link(procFile(shim, "fd/3"), "socket:[77]")
	all, err := AskPeers(limited(t), n.Root, n.processes(), "/k", testChild(t))
	must(t, err)
	equal(t, "peers", Peers{Asked: 10, Starting: []int{daemon}, Unanswered: []Peer{
		{Kind: PeerProxy, Name: "acme", Path: "/run/acme.sock", Dial: DialSilent},
		{Kind: PeerProxy, Name: "gone", Path: "/run/gone.sock", Dial: DialRefused, Default: true},
		{Kind: PeerDevice, Name: "gpu.sock", Path: "/k/device-plugins/gpu.sock", Dial: DialSilent},
		{Kind: PeerKubelet, Name: "csi.sock", Path: "/k/plugins/csi.io/csi.sock", Dial: DialSilent},
		{
			Kind: PeerShim, Name: "a", Path: "/run/containerd/s/a", Dial: DialSilent, PID: shim, Comm: "containerd-shim",
			State: 'S', Owner: Owner{Role: RoleShim, ObjectID: idA},
		},
	}, CRIOff: `/etc/containerd/config.toml has disabled_plugins = ['x', "cri"]`}, all)
}

// listen makes a socket at which a peer answers with a text, or never where that is empty, or that nobody serves.
func listen(t *testing.T, path, answer string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	if answer == "gone" {
		lis.SetUnlinkOnClose(false)
		must(t, lis.Close())
		return
	}
	t.Cleanup(func() { lis.Close() })
	if answer == "" {
		return // the kernel accepts connections
	}
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			_, _ = strings.NewReader(answer).WriteTo(conn)
			conn.Close()
		}
	}()
}
