// Package syncloop is a small kubelet that runs pods on a real CRI runtime through the same machinery as the real one:
// pod sources feed the loop, pod workers compute what each pod needs and do it, PLEG lists every container each second
// and turns changes into events. docs/syncloop.md maps each part to the kubelet's.
package syncloop
