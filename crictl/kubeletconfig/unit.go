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

// unitDirs are where systemd looks for units (systemd.unit(5)), the most important first.
func unitDirs() []string {
	return []string{
		"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
		"/lib/systemd/system",
	}
}

// UnitArgs returns the arguments with which a systemd service is started, by its unit file and drop-ins, with the
// program first. Variables that Environment and EnvironmentFile set are replaced; others are empty. Without a unit
// there are none.
func UnitArgs(name string, files Files) []string {
	var sources []string
	dropIns := map[string]string{}
	for _, dir := range slices.Backward(unitDirs()) {
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
	for _, source := range sources {
		data, _ := files.Read(source)
		options, _ := unit.DeserializeOptions(bytes.NewReader(data)) // up to what is malformed
		for _, o := range options {
			switch {
			case o.Section != "Service":
			case o.Name == "ExecStart":
				command = o.Value // an empty one takes back those before it
			case o.Name == "Environment":
				setVariables(env, words(o.Value))
			case o.Name == "EnvironmentFile":
				data, _ := files.Read(strings.TrimPrefix(o.Value, "-"))
				for line := range strings.Lines(string(data)) {
					if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
						fromFiles[key] = strings.Join(words(value), " ")
					}
				}
			}
		}
	}
	maps.Copy(env, fromFiles)
	var args []string
	for _, word := range words(strings.TrimLeft(command, "@-:+!")) {
		if variable, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(variable, "{") {
			args = append(args, strings.Fields(env[variable])...) // a word of its own is split
			continue
		}
		args = append(args, os.Expand(word, func(key string) string { return env[key] }))
	}
	return args
}

func setVariables(env map[string]string, assignments []string) {
	for _, assignment := range assignments {
		if key, value, ok := strings.Cut(assignment, "="); ok {
			env[key] = value
		}
	}
}

// words splits a value as systemd does: at white space outside of quotes, which are removed. A backslash at the end
// of a line joins it with the next.
func words(value string) []string {
	var list []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range strings.ReplaceAll(value, "\\\n", " ") {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, inWord = r, true
		case quote == 0 && strings.ContainsRune(" \t\r\n", r):
			if inWord {
				list = append(list, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		list = append(list, word.String())
	}
	return list
}
