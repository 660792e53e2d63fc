package syncloop_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// chattyLines is how many lines the pod of chatty writes, in some rounds, each of which fills a log of chattySize.
const (
	chattyLines = 5000
	chattySize  = "32Ki"
)

// chatty is a pod that numbers its lines. It rests between its rounds for longer than the second that the names of rotated logs
// tell apart.
func chatty() []*v1.Pod {
	const script = "for i in 0 1 2 3 4; do seq $((i*%[1]d+1)) $((i*%[1]d+%[1]d)); sleep 2; done; "
	return []*v1.Pod{newPod("chatty", shell("c", fmt.Sprintf(script, chattyLines/5)+forever))}
}

// checkLogs looks whether a log was rotated as it grew: a few files, the older ones compressed, and no line lost between them.
func (n *node) checkLogs() {
	n.await("all lines, in three files", func() error {
		files, lines, err := n.logged("chatty")
		if err != nil {
			return err
		}
		if len(files) != 3 || len(lines) == 0 || lines[len(lines)-1] != chattyLines {
			return fmt.Errorf("%v with %d lines", files, len(lines))
		}
		if files[2] != "0.log" || !strings.HasSuffix(files[0], ".gz") || strings.HasSuffix(files[1], ".gz") {
			return fmt.Errorf("the files are %v", files)
		}
		for i := range lines[1:] {
			if lines[i+1] != lines[i]+1 {
				return fmt.Errorf("after line %d comes %d", lines[i], lines[i+1])
			}
		}
		return nil
	})
}

// logged are the names of a container's logs, oldest first, and the numbers of the lines in them.
func (n *node) logged(name string) (names []string, lines []int, err error) {
	pattern := filepath.Join(n.cfg.LogDir, "pods", "*_"+string(n.pod(name).UID), "c", "0.log")
	rotated, err := filepath.Glob(pattern + ".*")
	if err != nil {
		return nil, nil, err
	}
	current, err := filepath.Glob(pattern)
	if err != nil {
		return nil, nil, err
	}
	for _, file := range append(rotated, current...) {
		text, err := readLog(file)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, filepath.Base(file))
		for line := range strings.Lines(text) { // 2026-11-21T21:00:00.000000000Z stdout F 17
			fields := strings.Fields(line)
			number, err := strconv.Atoi(fields[min(3, len(fields)-1)])
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %q", file, line)
			}
			lines = append(lines, number)
		}
	}
	return names, lines, nil
}

func readLog(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var in io.Reader = f
	if filepath.Ext(name) == ".gz" {
		if in, err = gzip.NewReader(f); err != nil {
			return "", err
		}
	}
	text, err := io.ReadAll(in)
	return string(text), err
}
