package signature

import "strings"

// readKernelTask reads the task that these name:
//
//	INFO: task runc:[2:INIT]:4711 blocked for more than 122 seconds.
//	watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [containerd-shim:1234]
//	Detected process (4711) blocked in uninterruptible sleep for more than 60 seconds for container 0a1b
//
// A task's name may contain colons and blanks; the last colon before "blocked" ends it.
func readKernelTask(s string, m *Match) {
	before, rest, blocked := strings.Cut(s, " blocked ")
	if blocked {
		if _, n, ok := strings.Cut(rest, "more than "); ok {
			m.Seconds = float64(leadingInt(n))
		}
		if _, pid, ok := strings.Cut(before, "etected process ("); ok {
			m.PID = int(leadingInt(pid))
			return
		}
		if _, task, ok := cutLast(before, "task "); ok {
			readNamePID(task, m)
		}
		return
	}
	if rest, ok := after(s, "stuck for "); ok {
		m.Seconds = float64(leadingInt(rest))
		if _, task, ok := strings.Cut(rest, "["); ok {
			if i := strings.LastIndexByte(upTo(task, "\n"), ']'); i >= 0 {
				readNamePID(task[:i], m)
			}
		}
	}
}

// readNamePID reads name:pid.
func readNamePID(s string, m *Match) {
	name, pid, ok := cutLast(s, ":")
	if ok && pid != "" && isDigit(pid[0]) {
		m.Process, m.PID = keep(name), int(leadingInt(pid))
	}
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, rest string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// readOOM reads the task and what ran out of memory:
//
//	Memory cgroup out of memory: Killed process 4711 (java) total-vm:...
//	Out of memory: Kill process 4711 (java) score 900 or sacrifice child
//	oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),...,task_memcg=/kubepods/...,task=java,pid=4711,uid=0
//	java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=994
func readOOM(s string, m *Match) {
	if i := strings.Index(s, "ut of memory"); i >= 0 {
		m.Constraint = "global"
		if strings.Contains(s[:i], "cgroup") {
			m.Constraint = "memcg"
		}
		if _, rest, ok := strings.Cut(s[i:], " process "); ok {
			m.PID = int(leadingInt(rest))
			if _, name, ok := strings.Cut(rest, "("); ok {
				m.Process = keep(victimName(name))
			}
		}
		return
	}
	if rest, ok := after(s, "oom-kill:constraint="); ok {
		m.Constraint = "global"
		if strings.HasPrefix(rest, "CONSTRAINT_MEMCG") {
			m.Constraint = "memcg"
		}
		// The task's name comes last but for pid and uid, and may itself contain a comma.
		if _, task, ok := cutLast(rest, ",task="); ok {
			name, pid, _ := strings.Cut(task, ",pid=")
			m.Process, m.PID = keep(name), int(leadingInt(pid))
		}
		if _, cgroup, ok := strings.Cut(rest, "task_memcg="); ok {
			m.Path = keep(upTo(cgroup, ", \n"))
		}
		return
	}
	if before, _, ok := strings.Cut(s, " invoked oom-killer"); ok {
		if _, name, ok := cutLast(before, ": "); ok {
			before = name
		}
		if _, name, ok := cutLast(before, "] "); ok {
			before = name
		}
		m.Process = keep(before)
	}
}

// victimName reads the name in front of its closing parenthesis, which it may itself contain: "(sd-pam)) total-vm".
func victimName(s string) string {
	for _, end := range []string{") score", ") total-vm", "), ", ","} {
		if name, _, ok := strings.Cut(s, end); ok {
			return strings.TrimSuffix(name, ")")
		}
	}
	return upTo(s, ")\n")
}

// fileServer reads the server of "nfs: server 10.36.3.5 not responding" and "CIFS: VFS: \\server has not responded".
func fileServer(s string) string {
	if rest, ok := after(s, "server "); ok {
		return keep(upTo(rest, " ,\n"))
	}
	if before, _, ok := strings.Cut(s, " has not responded"); ok {
		_, name, _ := cutLast(before, " ")
		return keep(strings.TrimLeft(name, `\`))
	}
	return ""
}

// deviceOf reads the device that a complaint of the kernel names: "dev sda1", "(dm-0)", "device nvme0n1", "waiting
// for eth0", "nvme nvme0:".
func deviceOf(s string) string {
	for _, mark := range []string{
		", dev ", "on dev ", "on device ", "(device ", "waiting for ", "XFS (", "EXT4-fs (", "nvme nvme",
	} {
		rest, ok := after(s, mark)
		if !ok {
			continue
		}
		name := upTo(rest, " ,):;\n")
		if mark == "nvme nvme" {
			name = "nvme" + name
		}
		if name != "" {
			return keep(name)
		}
	}
	return ""
}

// pathOf reads the path in a message about a file or a cgroup: the last word with a slash in front.
func pathOf(s string) string {
	for end := len(s); end > 0; {
		i := strings.LastIndexByte(s[:end], '/')
		if i < 0 {
			return ""
		}
		begin := i
		for begin > 0 && isPathByte(s[begin-1]) {
			begin--
		}
		if s[begin] == '/' && (begin == 0 || strings.IndexByte(" =\"'(:", s[begin-1]) >= 0) {
			stop := begin
			for stop < len(s) && isPathByte(s[stop]) {
				stop++
			}
			if stop-begin > 1 {
				return keep(s[begin:stop])
			}
		}
		end = begin
	}
	return ""
}

func isPathByte(c byte) bool {
	return isWord(c) || c == '/' || c == '.' || c == '-' || c == '@' || c == '+' || c == '~' || c == '%' || c == '#'
}
