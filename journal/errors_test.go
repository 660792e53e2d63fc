package journal

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal/signature"
)

// readErrors returns the groups of errors of a text, in a line each: count, lane, severity, code, pods, template.
func readErrors(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for _, g := range readText(t, text, Options{everySync: true}).Errors {
		fmt.Fprintf(&out, "%d %s %s %s %v %s\n", g.Count, g.Lane, g.Severity, g.Code, g.Pods, g.Template)
	}
	return out.String()
}

// failure matches the error in a template, up to its end.
var failure = regexp.MustCompile(`(?m)( (?:err|error)=)".*failed to stat.*$`)

// TestErrorsOfDaemons reads logs of a real kubelet 1.36.3 and containerd 1.6.20: from the start on, with pods that come
// and go; with pods that crash, lack their command or their image, and whose probes fail; and after the layer of an
// image was removed.
func TestErrorsOfDaemons(t *testing.T) {
	for name, want := range map[string]string{
		"healthy-kubelet-1.36":     "",
		"healthy-containerd-1.6":   "",
		"workloads-kubelet-1.36":   "",
		"workloads-containerd-1.6": "",
		"layer-removed-kubelet-1.36": `7 kubelet error CreateFailed [] "RunPodSandbox from runtime service failed" err=
7 kubelet error CreateFailed [default/web5-node1] "Failed to create sandbox for pod" err=
7 kubelet error CreateFailed [default/web5-node1] "CreatePodSandbox for pod failed" err=
7 kubelet error CreateFailed [default/web5-node1] "Error syncing pod, skipping" err=
`,
		"layer-removed-containerd-1.6": `7 runtime error RuntimeCallFailed [default/web5-node1] level=error ` +
			`msg="RunPodSandbox for &PodSandboxMetadata{Name:<*>,Uid:<*>,Namespace:<*>,Attempt:<*>,} failed, error" error=
`,
	} {
		text := testkit.Read(t, "testdata/errors/"+name+".log")
		testkit.Equal(t, name, want, failure.ReplaceAllString(readErrors(t, text), "$1"))
	}
}

// TestErrorsOf reads single records.
func TestErrorsOf(t *testing.T) {
	const stamp = "1121 00:52:12.490297   30256 "
	for name, tt := range map[string]struct{ text, want string }{
		"no error": {"I" + stamp + `kubelet.go:1] "Failed to do it" err="no"`, ""},
		"a canary": {
			"Nov 21 00:52:12 n1 containerd[7]: " + `time="2026-11-21T00:52:12.1Z" level=error msg="RunPodSandbox for ` +
				`&PodSandboxMetadata{Name:kdiag-canary-1,Uid:1,Namespace:kdiag-canary,Attempt:0,} failed, error"`, "",
		},
		"klog": {
			"W" + stamp + `a.go:1] Failed to do it 17 times`,
			"1 kubelet warning  [] Failed to do it <*> times\n",
		},
		"fatal": {"F" + stamp + `a.go:1] it broke`, "1 kubelet error  [] it broke\n"},
		"journal": {
			"Nov 21 00:52:12 n1 containerd[7]: " + `time="2026-11-21T00:52:12.1Z" level=error msg="it broke" id=a1b2`,
			"1 runtime error  [] level=error msg=\"it broke\" id=<*>\n",
		},
		"another program": {"Nov 21 00:52:12 n1 etcd[7]: E" + stamp + `a.go:1] it broke`, ""},
		"klog's JSON": {
			`{"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"it broke",` +
				`"pod":{"name":"web","namespace":"a"},"err":"no"}`,
			"1 kubelet error  [a/web] \"it broke\" pod=\"<*>\" err=\"no\"\n",
		},
		"a container's environment": {
			"E" + stamp + `kuberuntime_manager.go:1341] "Unhandled Error" err="container &Container{Name:app,Image:app:1,` +
				`Env:[]EnvVar{EnvVar{Name:PASSWORD,Value:secret,},},} start failed in pod app_a(1f2e): CreateContainerError: no"`,
			"1 kubelet error  [a/app] \"Unhandled Error\" err=\"container &Container{…} start failed in pod <*>(<*>): " +
				"CreateContainerError: no\"\n",
		},
		"a command": {
			"E" + stamp + `remote_runtime.go:1] "ExecSync cmd from runtime service failed" err="no" ` +
				`cmd=["sh","-c","secret"] x="1"`,
			"1 kubelet error ExecFailed [] \"ExecSync cmd from runtime service failed\" err=\"no\" cmd=[…] x=\"<*>\"\n",
		},
		"an image that is not there": {
			"E" + stamp + `log.go:1] "PullImage from image service failed" err="rpc error: code = NotFound desc = ` +
				`failed to pull and unpack image \"docker.io/library/nothere:1\": failed to resolve reference \"docker.io/library/nothere:1\": ` +
				`docker.io/library/nothere:1: not found" image="nothere:1"` + "\n" +
				"E" + stamp + `pod_workers.go:1] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"app\" ` +
				`with ImagePullBackOff: \"Back-off pulling image \\\"nothere:1\\\"\"" pod="a/web" podUID="1f"`,
			"",
		},
	} {
		testkit.Equal(t, name, tt.want, readErrors(t, tt.text+"\n"))
	}
}

// TestErrorsGoOn dates a group from the last pause on, over the files of a journal that was rotated too.
func TestErrorsGoOn(t *testing.T) {
	at := func(s int) *time.Time { t := time.Date(2026, 11, 21, 1, 0, s, 0, time.UTC); return &t }
	group := func(first, since, last int) ErrorGroup {
		return ErrorGroup{Count: 1, First: at(first), Since: at(since), Last: at(last)}
	}
	for name, tt := range map[string]struct {
		a, b ErrorGroup
		want int
	}{
		"one after the other":     {group(0, 60, 100), group(110, 110, 200), 60},
		"after a pause":           {group(0, 60, 100), group(160, 160, 200), 160},
		"a pause in the new file": {group(0, 60, 100), group(110, 170, 200), 170},
	} {
		tt.a.join(&tt.b)
		testkit.Equal(t, name, ErrorGroup{Count: 2, First: at(0), Since: at(tt.want), Last: at(200)}, tt.a)
	}
	var text strings.Builder
	for _, second := range []int{1, 2, 50, 55, 59} {
		fmt.Fprintf(&text, "E1121 00:52:%02d.000000   30256 a.go:1] it broke %d\n", second, second)
	}
	g := readText(t, text.String(), Options{everySync: true}).Errors
	if len(g) != 1 || g[0].First.Second() != 1 || g[0].Since.Second() != 50 || g[0].Last.Second() != 59 ||
		g[0].Count != 5 || g[0].Example != "it broke 59" {
		t.Errorf("%+v", g)
	}
}

// TestErrorsAreBounded has more kinds of errors than are kept: those that go on stay.
func TestErrorsAreBounded(t *testing.T) {
	var text strings.Builder
	word := func(i int) string { return string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}) }
	for i := range 2 * maxErrorGroups {
		fmt.Fprintf(&text, "E1121 00:%02d:12.000000   30256 a.go:1] it broke %s\n", i/10, word(i))
		fmt.Fprintf(&text, "E1121 00:%02d:12.000000   30256 a.go:1] it goes on %s\n", i/10, strings.Repeat("a", 100_000))
	}
	g := readText(t, text.String(), Options{everySync: true}).Errors
	if len(g) != mostErrors || g[0].Count != 2*maxErrorGroups || len(g[0].Example) > exampleLength+3 ||
		len(g[0].Template) > maxTemplate+3 {
		t.Errorf("%d groups, the first %+v", len(g), g[0])
	}
}

func TestTemplate(t *testing.T) {
	for _, tt := range []struct{ message, want string }{
		{`"a b" err="no"`, `"a b" err="no"`},
		{
			`failed to \"StartContainer\" for \"web\" with RunContainerError: \"no\"`,
			`failed to \"StartContainer\" for \"<*>\" with RunContainerError: \"<*>\"`,
		},
		{`id=abc namespace=k8s.io`, `id=<*> namespace=<*>`},
		{`after 1m3.5s at 18:12:59.1, 3, 4 and 0x1f`, `after <*> at <*> and <*>`},
		{`open /var/lib/x: no such file`, `open <*>: no such file`},
		{`read/write or i/o error of kube-system/coredns`, `read/write or i/o error of <*>`},
		{`{Name:web,Uid:a,Namespace:default,} desc = http: bad`, `{Name:<*>,Uid:<*>,Namespace:<*>,} desc = http: bad`},
		{"a\x1b[31mb\x00c", "a[<*>c"},
	} {
		testkit.Equal(t, tt.message, tt.want, template([]byte(tt.message)))
	}
}

// FuzzTemplate checks that a template is bounded, printable, and the same whatever the numbers are.
func FuzzTemplate(f *testing.F) {
	names, err := filepath.Glob("testdata/errors/*.log")
	if err != nil || len(names) < 6 {
		f.Fatalf("%d files, %v", len(names), err)
	}
	for _, name := range names {
		for line := range strings.Lines(testkit.Read(f, name)) {
			f.Add([]byte(line))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := template(b)
		if len(got) > maxTemplate+len("…") || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q is not bounded or not clean", got)
		}
		other := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '8' {
				return r + 1
			}
			return r
		}, string(b))
		if again := template([]byte(other)); strings.ToValidUTF8(string(b), "") == string(b) && got != again {
			t.Errorf("%q and %q differ only in numbers", got, again)
		}
		_ = lineSeverity(b)
		_ = withoutSpec(b)
	})
}

// TestLongErrors reads records of a real kubelet 1.36.3 that are longer than what is kept of them, or have more than
// one line: the words at the end say why.
func TestLongErrors(t *testing.T) {
	r := readText(t, testkit.Read(t, "testdata/errors/long.log"), Options{everySync: true})
	end := func(s string) string { return s[max(0, len(s)-60):] }
	var got []string
	for _, c := range r.Signatures {
		for _, s := range c.Subjects {
			got = append(got, fmt.Sprintf("%s %d %s", c.Code, s.Count, end(s.Error)))
		}
	}
	for _, g := range r.Errors {
		got = append(got, g.Code+" "+end(g.Example))
		if g.Code == signature.PodSyncFailed && !strings.Contains(g.Example, "failed to unmount") {
			t.Errorf("the error that says what failed is cut: %s", g.Example)
		}
	}
	want := []string{
		`PodSyncFailed 1 28cf792f192b77a35abd68b6249b5d/shm": operation not permitted`,
		`StopFailed 1 28cf792f192b77a35abd68b6249b5d/shm": operation not permitted`,
		`MountFailed 1 16ea8a8ed/volumes/kubernetes.io~empty-dir/e: target is busy.`,
		`LogRotateFailed 1 `,
		`PodSyncFailed i/sandboxes/c4ad2e852e0e/shm\\\": operation not permitted\""`,
		`MountFailed 665318526d8c45d016ea8a8ed") : unmount failed: exit status 32`,
		`LogRotateFailed daa12a38e1/c/0.log.20261128-182548: operation not permitted"`,
	}
	testkit.Equal(t, "the ends of errors", want, got)
}
