package textlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/journal/signature"
)

// dull returns klog lines that match nothing, as a kubelet writes them all day.
func dull(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "I0703 %02d:%02d:%02d.%06d 1946644 kubelet_getters.go:%d] \"Pod status updated\" "+
			"pod=\"kube-system/kube-proxy-%05x\" status=\"Running\"\n",
			i/3600%24, i/60%60, i%60, i*7919%1000000, 170+i%40, i*48271%1048576)
		fmt.Fprintf(&b, "I0703 %02d:%02d:%02d.%06d 1946644 reconciler_common.go:%d] "+
			"operationExecutor.VerifyControllerAttachedVolume started for volume with name config-%d uid %08x "+
			"node worker-%d, and the rest of the line\n",
			i/3600%24, i/60%60, i%60, i*104729%1000000, 200+i%90, i%17, uint32(i)*2654435761, i%9)
	}
	return b.String()
}

// benchmark scans a text, which may be packed, and has this size unpacked.
func benchmark(b *testing.B, text string, size int) {
	m := signature.NewMatcher()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		scan(b, text, Options{Next: m.Next, Longest: m.Longest(), SampleEvery: 10000}, func(r *Record) {
			if !r.Sample {
				b.Fatalf("given: %q", r.Raw)
			}
		})
	}
}

func BenchmarkScanNothing(b *testing.B) {
	text := dull(64 << 20)
	benchmark(b, text, len(text))
}

func BenchmarkScanCompressed(b *testing.B) {
	text := dull(32 << 20)
	for _, format := range []string{"gzip", "zstd"} {
		b.Run(format, func(b *testing.B) { benchmark(b, packed(b, text, format), len(text)) })
	}
}
