// Package kubeletconfig reads the settings of a kubelet: its configuration file, the drop-ins over it and the flags
// over both, by the kubelet's rules. Files are read through functions of the caller, because a kubelet may run below
// another root. Fields of KubeletConfiguration that Config lacks are only named.
package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/crictl/safefile"
)

// maxFile is the largest file that is read, in bytes. Usual files have some kilobytes.
const maxFile = 2 << 20

// Files give access to the host's files as the kubelet's process sees them.
type Files struct {
	Read    func(name string) ([]byte, error)
	DropIns func(dir string) ([]string, error) // as the function DropIns
}

// HostFiles reads the files of this process's own root.
func HostFiles() Files { return Files{ReadFile, DropIns} }

// ReadFile reads a regular file of at most 2 MiB. It does not wait where a pipe stands in the file's place.
func ReadFile(path string) ([]byte, error) {
	f, err := safefile.Open(path, 0)
	if err != nil {
		return nil, err
	}
	return safefile.ReadAll(f, maxFile)
}

// DropIns lists the files of a --config-dir in the order in which the kubelet applies them: all that end in .conf,
// also in folders below, by name. The names are relative to dir.
func DropIns(dir string) (names []string, err error) {
	dir += "/" // makes WalkDir follow a folder that is a symbolic link
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Ext(path) == ".conf" {
			names = append(names, strings.TrimPrefix(path, dir))
		}
		return err
	})
	return names, err
}

// Settings are the settings of a kubelet.
type Settings struct {
	Config            // complete with the kubelet's defaults
	Files    []string // that were read, in order
	Other    []string // fields that are set and that Config does not have, with dots inside other fields
	Problems []Problem

	set  map[string]any
	from map[string]string // the file or flag that was the last to set a field, also one inside another
}

// A Problem is a file, flag or field that could not be used. The rest of the settings holds without it.
type Problem struct {
	Where string // a file's name, a flag as --name, or a field
	Err   error  // reads as the rest of the sentence: "is not a regular file"
}

var errWrongValue = errors.New("has a wrong value") // the text of encoding/json names Go types

func (p Problem) Error() string { return p.Where + " " + p.Err.Error() }

// IsSet reports whether a file or flag sets a field of KubeletConfiguration. A zero value that means the same as its
// absence does not count: kubeadm writes containerRuntimeEndpoint: "".
func (s *Settings) IsSet(field string) bool {
	value, ok := s.set[field]
	return ok && (!isZero(value) || slices.Contains(zeroCounts(), field))
}

// WithoutConfig is the origin of the settings that have another default without --config.
const WithoutConfig = "without --config"

// Origin returns the flag, as --name, or the file that sets a field of KubeletConfiguration, with a dot inside another
// field, or WithoutConfig; empty where none does.
func (s *Settings) Origin(field string) string {
	if outer, _, _ := strings.Cut(field, "."); !s.IsSet(outer) {
		return ""
	}
	return s.from[field]
}

// note notes where fields are set.
func (s *Settings) note(where string, fields map[string]any) {
	for field, value := range fields {
		s.from[field] = where
		inner, _ := value.(map[string]any)
		for name := range inner {
			s.from[field+"."+name] = where
		}
	}
}

// Read reads the files that the flags --config and --config-dir name, and puts the flags over them. Flags are as
// ParseFlags returns them. With command they are all that the kubelet command is given: without --config its defaults
// are a read-only port and no thresholds of eviction (applyLegacyDefaults in cmd/kubelet/app/options upstream).
func Read(flags map[string][]string, files Files, command bool) *Settings {
	s := &Settings{set: map[string]any{}, from: map[string]string{}}
	file := Last(flags, "config")
	if file != "" {
		s.apply(file, files)
		s.settle()
	} else if command {
		s.set["readOnlyPort"], s.set["evictionHard"] = 10255, map[string]any{}
		s.note(WithoutConfig, s.set)
	}
	if dir := Last(flags, "config-dir"); dir != "" {
		names, err := files.DropIns(dir)
		if err != nil {
			s.Problems = append(s.Problems, Problem{dir, err})
		}
		for _, name := range names {
			s.apply(filepath.Join(dir, name), files)
		}
	}
	s.applyFlags(flags)
	s.decode()
	return s
}

// settle sets the fields that the kubelet derives from its file before it reads drop-ins and flags (loadConfigFile in
// cmd/kubelet/app/server.go upstream): drop-ins are merged over the default thresholds of eviction.
func (s *Settings) settle() {
	given, ok := s.set["evictionHard"].(map[string]any)
	if s.set["evictionHard"] == nil || ok && s.set["mergeDefaultEvictionSettings"] == true {
		thresholds := map[string]any{}
		for signal, threshold := range Defaults().EvictionHard {
			thresholds[signal] = threshold
		}
		maps.Copy(thresholds, given)
		s.set["evictionHard"] = thresholds
	}
	if isZero(s.set["nodeStatusReportFrequency"]) && !isZero(s.set["nodeStatusUpdateFrequency"]) {
		s.set["nodeStatusReportFrequency"] = s.set["nodeStatusUpdateFrequency"]
	}
}

// apply merges one file into the settings, by RFC 7396 as the kubelet does (mergeKubeletConfigurations in
// cmd/kubelet/app/server.go upstream).
func (s *Settings) apply(name string, files Files) {
	data, err := files.Read(name)
	var doc map[string]any
	if err == nil {
		doc, err = parse(data)
	}
	if err != nil {
		s.Problems = append(s.Problems, Problem{name, err})
		return
	}
	s.Files = append(s.Files, name)
	mergePatch(s.set, doc)
	s.note(name, doc)
}

// parse reads a KubeletConfiguration as YAML or JSON.
func parse(data []byte) (map[string]any, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("is not a KubeletConfiguration: %w", err)
	}
	if kind, ok := doc["kind"].(string); ok && kind != "KubeletConfiguration" {
		return nil, fmt.Errorf("is a %q, not a KubeletConfiguration", kind)
	}
	delete(doc, "apiVersion")
	delete(doc, "kind")
	return doc, nil
}

// mergePatch applies patch to doc by RFC 7396: maps are merged, null removes, everything else replaces.
func mergePatch(doc, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(doc, key)
		case isMap:
			below, ok := doc[key].(map[string]any)
			if !ok {
				below = map[string]any{}
				doc[key] = below
			}
			mergePatch(below, inner)
		default:
			doc[key] = value
		}
	}
}

// decode fills Config. Each field is decoded for itself, so that a bad one is named and costs no other.
func (s *Settings) decode() {
	defaults := Defaults()
	s.Config = defaults
	s.EvictionHard = nil // json would merge into it
	for _, field := range slices.Sorted(maps.Keys(s.set)) {
		value := s.set[field]
		if isZero(value) && !slices.Contains(zeroCounts(), field) {
			continue
		}
		data, err := json.Marshal(map[string]any{field: value})
		if err == nil {
			var unknown []error
			unknown, err = kjson.UnmarshalStrict(data, &s.Config, kjson.DisallowUnknownFields)
			for _, u := range unknown {
				if f, ok := errors.AsType[kjson.FieldError](u); ok {
					s.Other = append(s.Other, f.FieldPath())
				}
			}
		}
		if err != nil {
			s.Problems = append(s.Problems, Problem{field, errWrongValue})
		}
	}
	if s.EvictionHard == nil {
		s.EvictionHard = defaults.EvictionHard
	}
	s.setTTLs()
	if !s.IsSet("serializeImagePulls") {
		s.SerializeImagePulls = s.MaxParallelImagePulls < 2
	}
}

// isZero reports a value that means the same as its absence in most fields. Files that tools write are full of them.
func isZero(value any) bool {
	if fields, ok := value.(map[string]any); ok {
		return !slices.ContainsFunc(slices.Collect(maps.Values(fields)), func(inner any) bool { return !isZero(inner) })
	}
	return slices.Contains([]string{"", "0", "0s", "false", "<nil>", "[]"}, fmt.Sprint(value))
}
