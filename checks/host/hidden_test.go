package host

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestHidesProcesses(t *testing.T) {
	const (
		plain = "21 27 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:11 - proc proc rw\n"
		two   = "21 27 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:11 - proc proc rw,gid=990,hidepid=2\n"
		named = "21 27 0:20 / /proc rw,relatime - proc proc rw,hidepid=invisible\n"
		off   = "21 27 0:20 / /proc rw,relatime - proc proc rw,hidepid=0\n"
		other = "80 27 0:44 / /host/proc rw,relatime - proc proc rw,hidepid=ptraceable\n"
	)
	for _, tt := range []struct{ name, mountinfo, proc, want string }{
		{"none", plain, "/proc", ""},
		{"by number", two, "/proc", "hidepid=2"},
		{"by name", plain + named, "/proc", "hidepid=invisible"},
		{"turned off", off, "/proc", ""},
		{"another mount", other, "/proc", ""},
		{"of the host's root", plain + other, "/host/proc", "hidepid=ptraceable"},
		{"a later one lies over it", two + plain, "/proc", ""},
		{"torn", two[:40], "/proc", ""},
	} {
		if got := hidesProcesses([]byte(tt.mountinfo), tt.proc); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestHiddenProcesses counts what a user sees of himself, and does not take it for all.
func TestHiddenProcesses(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.write("proc/self/mountinfo", "21 27 0:20 / "+filepath.Join(n.root, "proc")+" rw,relatime - proc proc rw,hidepid=2\n")
	list, err := Processes(t.Context(), n.root)
	if len(list) != 1 || err == nil || !strings.Contains(err.Error(), "mounted with hidepid=2") {
		t.Errorf("%v, error %v", list, err)
	}
	if people, err := ReadPopulation(t.Context(), n.root); err == nil || people.gap() == nil {
		t.Errorf("the population is whole: %v", err)
	}
	n.process(1, 0, "systemd", 'S', "/sbin/init") // who sees it sees all
	if _, err := Processes(t.Context(), n.root); err != nil {
		t.Error(err)
	}
}

// TestProcessesOfUsers has programs of the node's names that other users run.
func TestProcessesOfUsers(t *testing.T) {
	n := newNode(t)
	n.process(1, 0, "systemd", 'S', "/sbin/init")
	for pid, uid := range map[int]string{50: "0\t0", 51: "65534\t65534", 52: "65534\t0"} {
		for i, comm := range []string{"kubelet", "containerd"} {
			pid := pid + 10*i
			n.process(pid, 1, comm, 'S', comm+" -c /etc/"+comm+".toml")
			n.write(filepath.Join("proc", strconv.Itoa(pid), "status"), "Name:\t"+comm+"\nUid:\t"+uid+"\t0\t0\n")
		}
	}
	list, err := Processes(t.Context(), n.root)
	if err != nil || len(list) != 2 || list[0].PID != 50 || list[1].PID != 60 {
		t.Fatalf("%+v, error %v; want root's alone", list, err)
	}
	if got, want := list[1].Config, "/etc/containerd.toml"; got != want {
		t.Errorf("configuration %q, want %q", got, want)
	}
}

func TestConfigArg(t *testing.T) {
	for args, want := range map[string]string{
		"containerd": "", "containerd -c /a.toml": "/a.toml", "containerd --config=/a": "/a", "crio -c=/a --config /b": "/b",
		"containerd -c a.toml": "", "containerd -c": "", "containerd config /x": "",
	} {
		if got := configArg(strings.Fields(args)); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

func TestOne(t *testing.T) {
	n := newNode(t)
	n.process(29, 1, "python3", 'T', "python3 x")
	got, err := One(n.root, 29)
	if want := (Process{PID: 29, PPID: 1, Name: "python3", State: 'T', Started: started(29)}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := One(n.root, 30); err == nil {
		t.Error("a process that is not there")
	}
}

func FuzzHidesProcesses(f *testing.F) {
	f.Add("21 27 0:20 / /proc rw,relatime shared:11 - proc proc rw,gid=990,hidepid=2\n", "Uid:\t0\t0\t0\t0\n", "containerd -c /a")
	f.Add("21 27 0:20 / /proc rw - proc proc hidepid=\n", "Uid:\t1", "x --config=")
	f.Fuzz(func(t *testing.T, mountinfo, status, args string) {
		if got := hidesProcesses([]byte(mountinfo), "/proc"); got != "" && !strings.HasPrefix(got, "hidepid=") {
			t.Errorf("%q: %q", mountinfo, got)
		}
		if ofUser([]byte(status), 0) && !strings.Contains(status, "Uid:") {
			t.Errorf("%q", status)
		}
		if file := configArg(strings.Fields(args)); file != "" && !filepath.IsAbs(file) {
			t.Errorf("%q: %q", args, file)
		}
	})
}
