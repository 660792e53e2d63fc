package crictl

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvArgs(t *testing.T) {
	for text, want := range map[string][]string{
		"":                            nil,
		"# A=\"--a\"\n":               nil,
		"A=\"--a=b  --c d\"\nB=--e\n": {"--a=b", "--c", "d", "--e"},
		"A=\n":                        nil,
		"no assignment":               nil,
	} {
		if diff := cmp.Diff(want, envArgs(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestParseKubeletConfigOfAnotherKind(t *testing.T) {
	for _, text := range []string{"root:x:0:0:root:/root:/bin/bash", "featureGates: [a]", "containerRuntimeEndpoint: {a: b}"} {
		if _, err := parseKubeletConfig([]byte(text)); err == nil || strings.Contains(err.Error(), "struct") || !strings.HasPrefix(err.Error(), "is no KubeletConfiguration") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzLeft(f *testing.F) {
	f.Add("A=\"--container-runtime-endpoint=unix:///run/x.sock\"", "Uid:\t0\t0\t0\t0\n")
	f.Add("A='\nB", "Uid:\t0\nUid:")
	f.Fuzz(func(t *testing.T, env, status string) {
		for _, arg := range envArgs(env) {
			if arg == "" || strings.ContainsAny(arg, " \n") {
				t.Errorf("argument %q", arg)
			}
		}
		why := alienUser([]byte(status), 1000)
		if why == "" && !strings.Contains(status, "Uid:") || strings.ContainsAny(why, "\x00\x1b\n") {
			t.Errorf("%q: %q", status, why)
		}
	})
}
