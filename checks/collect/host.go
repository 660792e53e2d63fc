package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// addTable adds a table. Each call of row adds one.
func (f *files) addTable(path, source string, rows func(row func(cells ...any))) {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	rows(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = cell(c)
		}
		_, _ = fmt.Fprintln(table, strings.Join(texts, "\t")) // into memory
	})
	_ = table.Flush()
	f.add(path, source, redact.Text, &b)
}

// cell returns a value as one line of printable text.
func cell(v any) string {
	if at, ok := v.(time.Time); ok && !at.IsZero() {
		return at.UTC().Format(time.RFC3339)
	} else if ok {
		return "-"
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || unicode.IsSpace(r) {
			return r
		}
		return '?'
	}, fmt.Sprint(v))
	return cmp.Or(strings.Join(strings.Fields(text), " "), "-")
}

// processes adds the table of all processes.
func processes(ctx context.Context, in *Input, to *files) error {
	seen := in.Facts.Node.Population
	rows, err := seen.Value.Table(ctx)
	if len(rows) == 0 {
		return errors.Join(errors.New(seen.Why()), err)
	}
	to.addTable("host/processes.txt", "/proc", func(row func(...any)) {
		row("PID", "PPID", "STATE", "WCHAN", "THREADS", "RSS", "STARTED", "ROLE", "OBJECT", "CGROUP", "NAME",
			"ARGUMENTS")
		for _, r := range rows {
			row(r.PID, r.PPID, string(rune(r.State)), r.Wchan, r.Threads, units.Size(int64(r.RSS)), r.Started, r.Role,
				r.ObjectID, r.Cgroup, r.Name, strings.Join(r.Args, " "))
		}
	})
	return err
}

// procFiles adds files of /proc as they are.
func procFiles(to string, names ...string) func(context.Context, *Input, *files) error {
	return func(_ context.Context, in *Input, f *files) error {
		for _, name := range names {
			f.addFile(path.Join(to, path.Base(name)), crictl.SeenBy(in.Root, 0), "/proc/"+name, redact.Text)
		}
		return nil
	}
}

// mounts adds the host's mount table.
func mounts(_ context.Context, in *Input, to *files) error {
	of := "/proc/1/mountinfo"
	if filepath.Clean(in.Root) == "/" {
		of = "/proc/self/mountinfo"
	}
	to.addFile("host/mounts", crictl.SeenBy(in.Root, 0), of, redact.Text)
	return nil
}

// disks adds the file systems as the probes measured them: none that may hang is asked again.
func disks(_ context.Context, in *Input, to *files) error {
	spaces := in.Facts.Node.Spaces
	if len(spaces.Value) == 0 {
		return errors.New(spaces.Why())
	}
	to.addTable("host/disks", "statfs", func(row func(...any)) {
		row("MOUNT", "TYPE", "SOURCE", "SIZE", "FREE", "FREE BYTES", "INODES", "INODES FREE", "READ-ONLY", "PROBLEM")
		for _, s := range spaces.Value {
			problem := s.Err
			if s.Hung {
				problem = "statfs hangs, for " + units.Duration(s.Waiting)
			}
			row(s.Mount, s.Type, s.Source, units.Size(int64(s.Size)), units.Size(int64(s.Free)), s.Free, s.Inodes,
				s.InodesFree, s.ReadOnly, problem)
		}
	})
	return nil
}

// unitStates adds the units of kubelet and runtime as systemd reported them.
func unitStates(_ context.Context, in *Input, to *files) error {
	seen := in.Facts.Node.Systemd
	s := seen.Value
	switch {
	case seen.Skipped:
		return absence(seen.Why())
	case s.Hung:
		return errors.New("systemd hangs: no answer in " + units.Duration(s.Took))
	case !s.Answered:
		return errors.New(seen.Why())
	}
	to.addTable("units", "systemd over D-Bus", func(row func(...any)) {
		row("systemd "+s.Version, s.State, units.Count(s.Units, "unit"), units.Count(s.Jobs, "job"),
			"answered in "+units.Duration(s.Took))
		row()
		row("UNIT", "LOAD", "ACTIVE", "SUB", "RESULT", "SINCE", "RESTARTS", "EXIT STATUS", "ENABLED")
		for _, u := range []*host.Unit{s.Kubelet, s.Runtime} {
			if u != nil {
				row(u.Name, u.Load, u.Active, u.Sub, u.Result, u.Since, u.Restarts, u.ExitStatus, u.Enabled)
			}
		}
	})
	return nil
}

// versions adds the versions of kdiag, runtime, kubelet, systemd, kernel and distribution.
func versions(_ context.Context, in *Input, to *files) error {
	to.addTable("versions", "several", func(row func(...any)) {
		r := in.Facts.Runtime
		row("kdiag", in.Version)
		row("runtime", r.Name+" "+r.Version+" "+r.APIVersion)
		row("endpoint", r.Endpoint)
		if n := in.Facts.Node; n != nil {
			version := ""
			if m := n.Health.Value.Metrics; m != nil {
				version = m.Version
			}
			if o := n.Server.Value.Node; o != nil {
				version = cmp.Or(version, o.Status.NodeInfo.KubeletVersion)
			}
			row("kubelet", version)
			row("systemd", n.Systemd.Value.Version)
		}
		if in.Root == "" {
			return
		}
		root := crictl.SeenBy(in.Root, 0) // a file that is missing is left out
		kernel, _ := readFile(root, "/proc/version", mib)
		row("kernel", string(kernel))
		release, err := readFile(root, "/etc/os-release", mib)
		if err != nil { // a link to the other one on most distributions
			release, _ = readFile(root, "/usr/lib/os-release", mib)
		}
		row()
		for line := range strings.Lines(string(release)) {
			row(line)
		}
	})
	return nil
}
