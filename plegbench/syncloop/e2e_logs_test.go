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

// The pod of chatty writes its lines in some rounds, each of which more than fills a log of chattySize.
const (
	chattyRounds = 5
	chattyLines  = 1000 // in a round
	chattySize   = "32Ki"
	chattyBytes  = 32 << 10
)

// chatty is a pod that writes what it is told to.
func chatty() []*v1.Pod { return []*v1.Pod{newPod("chatty", shell("c", forever))} }

// checkLogs looks whether a log is rotated as it grows: a few files, the older ones compressed, and no line lost between them.
func (n *node) checkLogs() {
	n.await("the chatty pod", func() error { return n.isReady("chatty") })
	pattern := filepath.Join(n.cfg.LogDir, "pods", "*_"+string(n.pod("chatty").UID), "c", "0.log")
	for round := range chattyRounds {
		last := (round + 1) * chattyLines
		n.exec("chatty", fmt.Sprintf("seq %d %d > /proc/1/fd/1", last-chattyLines+1, last))
		n.await("the rotation of a full log", func() error {
			_, lines, err := n.logged("chatty")
			if err != nil {
				return err
			}
			current, err := filepath.Glob(pattern)
			if err != nil || len(current) != 1 || len(lines) == 0 || lines[len(lines)-1] != last {
				return fmt.Errorf("%v with %d lines, %w", current, len(lines), err)
			}
			if info, err := os.Stat(current[0]); err != nil || info.Size() >= chattyBytes {
				return fmt.Errorf("%+v, %w", info, err)
			}
			return nil
		})
	}
	n.await("all lines, in three files", func() error {
		files, lines, err := n.logged("chatty")
		if err != nil {
			return err
		}
		if len(files) != 3 || len(lines) == 0 || lines[len(lines)-1] != chattyRounds*chattyLines {
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
