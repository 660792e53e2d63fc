package kuberuntime

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// Bounds of termination messages (pkg/kubelet/container/runtime.go upstream).
const (
	messageBytes = 4096 // of the file
	logLines     = 80   // of the log
	logBytes     = 2048
	// logWindow is as much of a log's end as is read. A line of containerd's has at most 16 KiB, so that a line cut by the
	// window's start matters only where the lines after it are far more than enough.
	logWindow = 256 << 10
)

// terminationMessage is what a container left for others to read when it ended: its file, which is mounted into it, or with
// fallback, if the file is empty, the end of its log.
func terminationMessage(s *runtimeapi.ContainerStatus, fallback bool) string {
	path := s.GetAnnotations()[container.TerminationMessagePathAnnotation]
	for _, mount := range s.GetMounts() {
		if path == "" || mount.GetContainerPath() != path {
			continue
		}
		data, err := readEnd(mount.GetHostPath(), messageBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Sprintf("Error on reading termination log %s: %v", mount.GetHostPath(), err)
		case len(data) > 0:
			return string(data)
		}
		break
	}
	if !fallback {
		return ""
	}
	data, err := readEnd(s.GetLogPath(), logWindow)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return string(logEnd(data))
}

// readEnd reads at most the last bytes of a regular file.
func readEnd(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe that the container put there would hang whoever opens it
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
}

// logEnd returns the end of what a container wrote, out of the end of its log in CRI's format: a time, a stream, tags and
// text. P marks a line of the log that is no whole line of the container. What does not look like this is skipped.
//
//	2016-10-06T00:17:09.669794202Z stdout P the beginning
//	2016-10-06T00:17:09.669794203Z stderr F and the end of a line
func logEnd(data []byte) []byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines = slices.DeleteFunc(lines, func(l []byte) bool { return len(l) == 0 })
	var out []byte
	for _, line := range lines[max(0, len(lines)-logLines):] {
		out = append(out, logText(line)...)
	}
	return out[max(0, len(out)-logBytes):]
}

func logText(line []byte) []byte {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) < 4 {
		return nil
	}
	if _, err := time.Parse(time.RFC3339Nano, string(parts[0])); err != nil {
		return nil
	}
	if stream := runtimeapi.LogStreamType(parts[1]); stream != runtimeapi.Stdout && stream != runtimeapi.Stderr {
		return nil
	}
	tag, _, _ := bytes.Cut(parts[2], []byte(runtimeapi.LogTagDelimiter))
	if runtimeapi.LogTag(tag) == runtimeapi.LogTagPartial {
		return bytes.TrimSuffix(parts[3], []byte("\n"))
	}
	return parts[3]
}
