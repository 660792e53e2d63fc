package oom

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// A Kill is a process that the kernel killed for want of memory.
type Kill struct {
	// Memcg is the cgroup whose limit was reached; "/" when the whole system was out of memory.
	Memcg   string
	TaskCg  string // the cgroup of the victim
	Process string // the victim's name
	PID     int
}

// Global reports whether the whole system was out of memory.
func (k Kill) Global() bool { return k.Memcg == "/" }

var (
	summary = regexp.MustCompile(`oom-kill:constraint=.*?,(?:oom_memcg=(.*),|global_oom,)task_memcg=(.*),task=(.*),pid=([0-9]+),uid=`)
	limited = regexp.MustCompile(`Task in (.*) killed as a result of limit of (.*)`)
	killed  = regexp.MustCompile(`Killed process ([0-9]+) \((.+)\)`)
)

// A parser finds kills in the kernel's messages. What the kernel writes about one begins with the process that asked for
// memory, and ends, since Linux 5.0, with a line that says all:
//
//	node invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000
//	oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ID,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=node,pid=42,uid=0
//
// with global_oom in the place of oom_memcg=PATH when the system is out of memory. Before 5.0 there are two lines, the first
// of which is missing then:
//
//	Task in /kubepods/pod1/c killed as a result of limit of /kubepods/pod1
//	Killed process 42 (node) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB
type parser struct {
	kill    Kill
	started bool
}

// line takes the next message and returns a kill when it completes one.
func (p *parser) line(message string) (Kill, bool) {
	if strings.Contains(message, "invoked oom-killer:") {
		*p = parser{Kill{Memcg: "/", TaskCg: "/"}, true}
		return Kill{}, false
	}
	if !p.started {
		return Kill{}, false
	}
	pid := ""
	if m := summary.FindStringSubmatch(message); m != nil {
		if m[1] != "" {
			p.kill.Memcg = m[1]
		}
		p.kill.TaskCg, p.kill.Process, pid = m[2], m[3], m[4]
	} else if m := limited.FindStringSubmatch(message); m != nil {
		p.kill.TaskCg, p.kill.Memcg = rooted(m[1]), rooted(m[2])
	} else if m := killed.FindStringSubmatch(message); m != nil {
		pid, p.kill.Process = m[1], m[2]
	}
	if pid == "" {
		return Kill{}, false
	}
	p.started = false
	number, err := strconv.ParseInt(pid, 10, 32)
	if err != nil {
		return Kill{}, false // no kernel counts so far
	}
	p.kill.PID = int(number)
	return p.kill, true
}

// rooted makes a cgroup's path begin with a slash.
func rooted(path string) string { return "/" + strings.Trim(path, "/") }

// parseRecord returns the message of a record of /dev/kmsg, which is
//
//	priority,sequence,microseconds,flags[,more];message
//
// and, on further lines, values that begin with a space. Documentation/ABI/testing/dev-kmsg of the kernel has the format.
func parseRecord(record string) (string, error) {
	head, rest, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 4 {
		return "", errors.New("not a kernel record: no prefix of four fields and a semicolon")
	}
	for _, f := range fields[:3] {
		if _, err := strconv.ParseUint(f, 10, 64); err != nil {
			return "", errors.New("not a kernel record: a field of the prefix is no number")
		}
	}
	message, _, _ := strings.Cut(rest, "\n")
	return message, nil
}
