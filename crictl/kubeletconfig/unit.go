package kubeletconfig

import (
	"bytes"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// DefaultFile is where kubeadm writes the kubelet's configuration file.
const DefaultFile = "/var/lib/kubelet/config.yaml"

// ReadUnit reads the settings of a kubelet that does not run, by the arguments in kubelet.service. Without --config its
// file is read where kubeadm writes it.
func ReadUnit(files Files) *Settings {
	flags := ParseFlags(unitArgs("kubelet.service", files))
	if len(flags["config"]) == 0 {
		flags["config"] = []string{DefaultFile}
	}
	return Read(flags, files, true)
}

// unitArgs returns the arguments with which a systemd service is started, by its unit file and drop-ins, with the
// program first. Variables that Environment and EnvironmentFile set are replaced; others are empty. Quotes are removed,
// and hold nothing together but the value of a variable. Without a unit there are none.
func unitArgs(name string, files Files) []string {
	var sources []string
	dropIns := map[string]string{}
	// systemd.unit(5), the most important last
	for _, dir := range []string{"/usr/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system"} {
		if _, err := files.Read(path.Join(dir, name)); err == nil {
			sources = []string{path.Join(dir, name)}
		}
		inDir, _ := files.DropIns(path.Join(dir, name+".d"))
		for _, file := range inDir {
			dropIns[file] = path.Join(dir, name+".d", file)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(dropIns)) {
		sources = append(sources, dropIns[file])
	}
	env, fromFiles, command := map[string]string{}, map[string]string{}, ""
	assign := func(to map[string]string, text string) {
		key, value, _ := strings.Cut(strings.Trim(strings.TrimSpace(text), `"'`), "=")
		to[key] = strings.Trim(value, `"'`)
	}
	for _, source := range sources {
		data, _ := files.Read(source)
		options, _ := unit.DeserializeOptions(bytes.NewReader(data)) // up to the first malformed line
		for _, o := range options {
			switch {
			case o.Section != "Service":
			case o.Name == "ExecStart":
				command = o.Value // an empty one takes back those before it
			case o.Name == "Environment":
				assign(env, o.Value)
			case o.Name == "EnvironmentFile":
				data, _ := files.Read(strings.TrimPrefix(o.Value, "-"))
				for line := range strings.Lines(string(data)) {
					assign(fromFiles, line)
				}
			}
		}
	}
	maps.Copy(env, fromFiles)
	command = strings.ReplaceAll(strings.TrimLeft(command, "@-:+!"), "\\\n", " ")
	command = strings.NewReplacer(`"`, "", `'`, "").Replace(command)
	return strings.Fields(os.Expand(command, func(key string) string { return env[key] }))
}
