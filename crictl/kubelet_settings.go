package crictl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxDropIns bounds how many files of --config-dir are read.
const maxDropIns = 100

// kubeletSettings are the settings of one kubelet: flags, laid over the configuration file and its drop-ins.
type kubeletSettings struct {
	kubeletConfig
	collection   Collection // what flags alone can say
	configPath   string
	endpointFrom string
	unreadable   []string
}

// fill writes the settings into k.
func (s *kubeletSettings) fill(k *Kubelet) {
	k.ConfigPath = s.configPath
	k.Endpoint = s.endpoint
	if s.endpoint != "" {
		k.EndpointFrom = s.endpointFrom
	}
	k.RequestTimeout = s.timeout
	k.EventedPLEG = s.gate("EventedPLEG")
	k.CRIListStreaming = s.gate("CRIListStreaming")
	k.Collection = s.collection
	k.Collection.StaticPodPath = s.staticPodPath
	k.Collection.StaticPodURL = s.staticPodURL
	k.Collection.PodLogsDir = s.podLogsDir
	k.Collection.ReadOnlyPort = s.readOnlyPort
	if len(s.unreadable) > 0 {
		if k.Unreadable != "" {
			s.unreadable = slices.Insert(s.unreadable, 0, k.Unreadable)
		}
		k.Unreadable = strings.Join(s.unreadable, "; ")
	}
}

// readKubeletSettings reads the files that a kubelet's arguments name, and lays the arguments over them.
func readKubeletSettings(root string, p *kubeletProcess) kubeletSettings {
	flags := parseFlags(p.args,
		"config", "config-dir", "container-runtime-endpoint", "runtime-request-timeout", "feature-gates",
		"root-dir", "pod-manifest-path", "manifest-url", "read-only-port",
		"maximum-dead-containers-per-container", "minimum-container-ttl-duration")
	var s kubeletSettings
	if s.configPath = last(flags["config"]); s.configPath != "" {
		s.add(root, p.pid, s.configPath)
	}
	if dir := last(flags["config-dir"]); dir != "" {
		s.addDropIns(root, p.pid, dir)
	}
	s.endpointFrom = "containerRuntimeEndpoint in the configuration file"
	if v := last(flags["container-runtime-endpoint"]); v != "" {
		s.endpoint = v
		s.endpointFrom = "--container-runtime-endpoint"
	}
	if v := last(flags["runtime-request-timeout"]); v != "" {
		if d, err := time.ParseDuration(v); err == nil {
			s.timeout = d
		} else {
			s.unreadable = append(s.unreadable, "--runtime-request-timeout is no duration")
		}
	}
	for _, v := range flags["feature-gates"] {
		for gate, on := range parseGates(v) {
			s.setGate(gate, on)
		}
	}
	s.addCollection(flags)
	return s
}

// addCollection reads the flags on garbage collection and on where pods are. Those two on collection exist as flags only.
func (s *kubeletSettings) addCollection(flags map[string][]string) {
	s.collection.RootDir = last(flags["root-dir"])
	s.staticPodPath = firstNonEmpty(last(flags["pod-manifest-path"]), s.staticPodPath)
	s.staticPodURL = firstNonEmpty(last(flags["manifest-url"]), s.staticPodURL)
	number := func(name string, take func(int)) {
		v := last(flags[name])
		if v == "" {
			return
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			s.unreadable = append(s.unreadable, "--"+name+" is no number")
			return
		}
		take(n)
	}
	number("read-only-port", func(n int) { s.readOnlyPort = n })
	number("maximum-dead-containers-per-container", func(n int) { s.collection.DeadPerContainer = &n })
	if v := last(flags["minimum-container-ttl-duration"]); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			s.unreadable = append(s.unreadable, "--minimum-container-ttl-duration is no duration")
			return
		}
		s.collection.MinAge = d
	}
}

// add lays one file over the settings.
func (s *kubeletSettings) add(root string, pid int, name string) {
	data, err := readAsProcess(root, pid, name)
	if err == nil {
		var c kubeletConfig
		c, err = parseKubeletConfig(data)
		s.merge(c) // what could be read before the error counts
	}
	if err != nil {
		s.unreadable = append(s.unreadable, printable(name, errLimit)+" "+reasonOf(err))
	}
}

// addDropIns lays the drop-ins of a directory over the settings.
func (s *kubeletSettings) addDropIns(root string, pid int, dir string) {
	names, err := dropIns(root, pid, dir)
	if err != nil {
		s.unreadable = append(s.unreadable, printable(dir, errLimit)+" "+reasonOf(err))
		return
	}
	for _, name := range names {
		s.add(root, pid, name)
	}
}

// dropIns lists a --config-dir in the kubelet's order: all files that end in .conf, directories below included, by name.
func dropIns(root string, pid int, dir string) ([]string, error) {
	var names []string
	err := asProcess(root, pid, dir, func(path string) (err error) {
		names, err = confFiles(path, dir)
		return err
	})
	return names, err
}

// confFiles lists the files below path that end in .conf, as names below dir.
func confFiles(path, dir string) (names []string, err error) {
	// The slash makes it follow a directory that is a symbolic link.
	err = filepath.WalkDir(path+"/", func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !e.IsDir() && filepath.Ext(file) == ".conf" {
			rel, err := filepath.Rel(path, file)
			if err != nil {
				return err
			}
			names = append(names, filepath.Join(dir, rel))
		}
		if len(names) > maxDropIns {
			return errors.New("holds too many files")
		}
		return nil
	})
	return names, err
}

// asProcess does look at a file that a process sees as name, below each root through which it may be reached, until one look
// succeeds: below the process's own root, which is the right one when it runs in a container, and below ours, for users who may
// not look through another's.
func asProcess(root string, pid int, name string, look func(path string) error) error {
	proc := filepath.Join(root, "proc", strconv.Itoa(pid))
	bases := []string{filepath.Join(proc, "root"), root}
	if !filepath.IsAbs(name) {
		bases = []string{filepath.Join(proc, "cwd")}
	}
	var first error
	for _, base := range bases {
		err := InRoot(base, name, look)
		if err == nil {
			return nil
		}
		// The second root's "does not exist" must not hide that the first may not be looked through.
		if first == nil || errors.Is(first, os.ErrNotExist) {
			first = err
		}
	}
	return first
}

func readAsProcess(root string, pid int, name string) ([]byte, error) {
	var data []byte
	err := asProcess(root, pid, name, func(path string) (err error) {
		data, err = readFile(path)
		return err
	})
	return data, err
}

// parseFlags finds long flags among arguments, in both forms (--flag value and --flag=value), and returns every value of
// each in order. As in the kubelet, an underscore in a flag's name counts as a dash and "--" ends the flags. Flags that
// are not asked for are stepped over without knowing whether they take a value.
func parseFlags(args []string, names ...string) map[string][]string {
	out := make(map[string][]string)
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			break
		}
		body, ok := strings.CutPrefix(args[i], "--")
		if !ok {
			continue
		}
		name, value, joined := strings.Cut(body, "=")
		name = strings.ReplaceAll(name, "_", "-")
		if !slices.Contains(names, name) {
			continue
		}
		if !joined {
			if i+1 == len(args) {
				break
			}
			i++
			value = args[i]
		}
		out[name] = append(out[name], value)
	}
	return out
}

// parseGates reads the value of --feature-gates: EventedPLEG=true,CRIListStreaming=false. Entries that are neither true
// nor false are ignored; the kubelet would not have started with them.
func parseGates(s string) map[string]bool {
	out := make(map[string]bool)
	for entry := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(entry, "=")
		if on, err := strconv.ParseBool(strings.TrimSpace(value)); err == nil {
			out[strings.TrimSpace(name)] = on
		}
	}
	return out
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}
