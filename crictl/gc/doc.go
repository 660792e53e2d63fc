// Package gc chooses exited containers and dead sandboxes that may go, and removes them without hurting the node.
//
// Choosing is pure: Make takes the two lists, the ends of the containers and what is known about the pods, and returns a
// Plan. It is never bolder than the kubelet's own collector (kuberuntime_gc.go): exited containers only, the newest of
// every (pod UID, container name) stays, init containers and sidecars included, and a pod counts as gone only when the
// kubelet's pods, its pod directories and its static manifests all say so. Removing is careful: Run looks at each victim
// again right before it asks for its removal, watches a small list on the side, and goes only as fast as the runtime
// can bear. What was removed is in an audit file on the disk before it is counted.
//
// The package leaves out images, log directories of pods, and the symbolic links in /var/log/containers; the kubelet
// looks after all of them. It kills nothing: a container that runs, or whose state is not known, is never a victim.
package gc
