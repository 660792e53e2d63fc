package kubelet

import _ "embed"

// kubeletMetrics has the form that a kubelet 1.36 writes, with values that tell the families apart.
//
//go:embed testdata/metrics.txt
var kubeletMetrics string
