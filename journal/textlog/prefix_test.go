package textlog

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/journal/klog"
)

func at(y int, rest string) int64 {
	t, err := time.Parse("01-02 15:04:05.999999", rest)
	if err != nil {
		panic(err)
	}
	return t.AddDate(y, 0, 0).UnixMicro()
}

func TestPrefixes(t *testing.T) {
	const k = "E0703 19:59:01.292918 1946644 kubelet.go:1879] skipping"
	inner := klog.Stamp{Micros: at(1972, "07-03 19:59:01.292918"), Known: true}
	noYear := func(s string) klog.Stamp { return klog.Stamp{Micros: at(1972, s), Known: true} }
	year := func(y int, s string) klog.Stamp { return klog.Stamp{Micros: at(y, s), Known: true, Year: true} }
	zone := func(y int, s string, offset int32) klog.Stamp {
		return klog.Stamp{Micros: at(y, s), Known: true, Year: true, Zone: true, Offset: offset}
	}
	type want struct {
		Outer, Inner           klog.Stamp
		Host, Ident, Msg, Form string
		PID                    int
		Kernel                 bool
	}
	tests := []struct {
		in string
		want
	}{
		{k, want{Inner: inner, Msg: "skipping", Form: "klog"}},
		{"??? " + k, want{Inner: inner, Msg: "skipping", Form: "klog"}},
		{"Jul  3 19:59:01 h kubelet[7]: " + k, want{noYear("07-03 19:59:01"), inner, "h", "kubelet", "skipping", "syslog+klog", 7, false}},
		{"<30>Jul 3 19:59:01 h kubelet: " + k, want{noYear("07-03 19:59:01"), inner, "h", "kubelet", "skipping", "syslog+klog", 0, false}},
		{"Jul 03 19:59:01 kubelet[7]: " + k, want{noYear("07-03 19:59:01"), inner, "", "kubelet", "skipping", "syslog+klog", 7, false}},
		{"Jul 03 19:59:01 h microk8s.daemon-kubelet[7]: " + k, want{noYear("07-03 19:59:01"), inner, "h", "microk8s.daemon-kubelet", "skipping", "syslog+klog", 7, false}},
		{"juil. 03 19:59:01 h kubelet[7]: " + k, want{klog.Stamp{}, inner, "h", "kubelet", "skipping", "syslog+klog", 7, false}},
		{"{\"ts\":\"2023-07-03T19:59:01Z\",\"msg\":\"m\"}", want{Inner: zone(2023, "07-03 19:59:01", 0), Msg: `"m"`, Form: "klog-json"}},
		{"7月 03 19:59:01 h systemd: Started x.", want{noYear("07-03 19:59:01"), klog.Stamp{}, "h", "systemd", "Started x.", "syslog", 0, false}},
		{"    Aug 3 17:33:01 h kubelet.log " + k, want{noYear("08-03 17:33:01"), inner, "h", "kubelet.log", "skipping", "syslog+klog", 0, false}},
		{"2023-07-03T19:59:01+0800 h kubelet[7]: " + k, want{zone(2023, "07-03 19:59:01", 28800), inner, "h", "kubelet", "skipping", "syslog+klog", 7, false}},
		{"Mon 2023-07-03 19:59:01 CST h kubelet[7]: " + k, want{year(2023, "07-03 19:59:01"), inner, "h", "kubelet", "skipping", "syslog+klog", 7, false}},
		{"Mon 2023-07-03 19:59:01.5 UTC h kubelet[7]: " + k, want{zone(2023, "07-03 19:59:01.5", 0), inner, "h", "kubelet", "skipping", "syslog+klog", 7, false}},
		{"<30>1 2023-07-03T19:59:01Z h kubelet 7 - [a b=\"]\"] " + k, want{zone(2023, "07-03 19:59:01", 0), inner, "h", "kubelet", "skipping", "rfc5424+klog", 7, false}},
		{"2023-07-03T19:59:01.1Z " + k, want{zone(2023, "07-03 19:59:01.1", 0), inner, "", "", "skipping", "text+klog", 0, false}},
		{"2023-07-03T19:59:01.1Z stderr F " + k, want{zone(2023, "07-03 19:59:01.1", 0), inner, "", "", "skipping", "cri+klog", 0, false}},
		{`{"log":"` + k + `\n","stream":"stderr","time":"2023-07-03T19:59:01.1Z"}`, want{zone(2023, "07-03 19:59:01.1", 0), inner, "", "", "skipping", "docker+klog", 0, false}},
		{`10.0.0.1: {"ts":1688414341292.918,"caller":"a/b.go:1","msg":"m \"q\"","pod":{"name":"n","namespace":"s"},"err":"[x, y]"}`, want{Inner: zone(2023, "07-03 19:59:01.292918", 0), Host: "10.0.0.1", Msg: `"m \"q\"" pod="s/n" err="[x, y]"`, Form: "klog-json"}},
		{`Jul 01 17:13:17 h crio[5]: time="2020-07-01 17:13:17.695275621+02:00" level=debug msg="x"`, want{noYear("07-01 17:13:17"), zone(2020, "07-01 17:13:17.695275", 7200), "h", "crio", `level=debug msg="x"`, "syslog+logrus", 5, false}},
		{"[11859608.510084] nfs: server 10.36.3.5 not responding", want{Outer: klog.Stamp{Micros: 11859608510084, Known: true, Monotonic: true}, Msg: "nfs: server 10.36.3.5 not responding", Form: "dmesg", Kernel: true}},
		{"[Mon Nov 21 04:50:00 2022] nfs: x", want{Outer: year(2022, "11-21 04:50:00"), Msg: "nfs: x", Form: "dmesg", Kernel: true}},
		{"10.0.0.1: kern: info: [2022-11-21T04:50:00Z]: nfs: x", want{Outer: zone(2022, "11-21 04:50:00", 0), Host: "10.0.0.1", Msg: "nfs: x", Form: "dmesg", Kernel: true}},
		{"Nov 21 04:50:00 h kernel: [12.345678] nfs: x", want{Outer: noYear("11-21 04:50:00"), Host: "h", Ident: "kernel", Msg: "nfs: x", Form: "syslog+dmesg", Kernel: true}},
		{"kubelet.go:1821] skipping", want{Msg: "skipping", Form: "klog"}},
		{"2016-02-29 18:31:48,790 INFO success: docker", want{Outer: year(2016, "02-29 18:31:48.79"), Msg: "INFO success: docker", Form: "text"}},
		{"2023-07-03 19:59:01.292,\"" + k + "\"", want{Inner: inner, Msg: "skipping\"", Form: "text+klog"}},
		{"web-0 kubelet | " + k, want{Inner: inner, Msg: "skipping", Form: "text+klog"}},
		{`{"timestamp":"2023-07-03T19:59:01Z","jsonPayload":{"message":"` + k + `"}}`, want{Outer: zone(2023, "07-03 19:59:01", 0), Inner: inner, Msg: "skipping", Form: "json+klog"}},
		{
			"  Ready  False  Fri, 28 Jun 2019 10:19:21 +0800  Thu, 27 Jun 2019 07:07:38 +0800  KubeletNotReady  x",
			want{Outer: zone(2019, "06-28 10:19:21", 28800), Msg: "Ready  False  Fri, 28 Jun 2019 10:19:21 +0800  Thu, 27 Jun 2019 07:07:38 +0800  KubeletNotReady  x", Form: "describe"},
		},
		{"  Warning  ContainerGCFailed  5s (x543 over 27h)  kubelet, n  x", want{Msg: "Warning  ContainerGCFailed  5s (x543 over 27h)  kubelet, n  x", Form: "describe"}},
		{"default  3m11s  Normal  NodeReady  node/n  x", want{Msg: "default  3m11s  Normal  NodeReady  node/n  x", Form: "describe"}},
		{"KubeletNotReady   x", want{Msg: "KubeletNotReady   x", Form: "describe"}},
		{"skipping pod", want{Msg: "skipping pod", Form: "bare"}},
	}
	for _, tt := range tests {
		var got []want
		_, err := Scan(context.Background(), bytes.NewReader([]byte(tt.in+"\n")), Options{All: true}, func(r *Record) bool {
			got = append(got, want{r.Outer, r.Inner, r.Host, r.Identifier, string(r.Message), r.Format, r.PID, r.Kernel})
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]want{tt.want}, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.in, diff)
		}
	}
}
