package textlog

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/journal/signature"
)

// dull returns klog lines that match nothing, as a kubelet writes them all day.
func dull(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "I0703 %02d:%02d:%02d.%06d 1946644 kubelet_getters.go:%d] \"Pod status updated\" pod=\"kube-system/kube-proxy-%05x\" status=\"Running\"\n",
			i/3600%24, i/60%60, i%60, i*7919%1000000, 170+i%40, i*48271%1048576)
		fmt.Fprintf(&b, "I0703 %02d:%02d:%02d.%06d 1946644 reconciler_common.go:%d] operationExecutor.VerifyControllerAttachedVolume started for volume with name config-%d uid %08x node worker-%d, and the rest of the line\n",
			i/3600%24, i/60%60, i%60, i*104729%1000000, 200+i%90, i%17, uint32(i)*2654435761, i%9)
	}
	return b.Bytes()
}

func BenchmarkScanNothing(b *testing.B) {
	text := dull(64 << 20)
	m := signature.NewMatcher()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		opts := Options{Next: m.Next, Longest: m.Longest(), SampleEvery: 10000}
		_, err := Scan(context.Background(), bytes.NewReader(text), opts, func(r *Record) bool {
			if !r.Sample {
				b.Fatalf("given: %q", r.Raw)
			}
			return true
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanCompressed(b *testing.B) {
	text := dull(32 << 20)
	m := signature.NewMatcher()
	var packed bytes.Buffer
	z, _ := zstd.NewWriter(&packed)
	_, _ = z.Write(text)
	_ = z.Close()
	for name, data := range map[string][]byte{"gz": gzipped(b, text), "zst": packed.Bytes()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, err := Scan(context.Background(), bytes.NewReader(data), Options{Next: m.Next, Longest: m.Longest()}, func(*Record) bool { return true })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
