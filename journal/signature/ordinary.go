package signature

// ordinary is what healthy nodes print all day. Windows of literals are chosen to look unlike it; it decides speed, not
// what is found.
const ordinary = `Mar 05 10:11:12 node-07 kubelet[1432]: I0305 10:11:12.123456    1432 kubelet.go:2566] 
I0305 10:11:14.203010    1432 pod_startup_latency_tracker.go:104] "Observed pod startup duration" pod="web/api-0" podStartSLOduration=4.1 podStartE2EDuration="5.2s" podCreationTimestamp="2026-03-05 10:11:12 +0000 UTC" firstStartedPulling="0001-01-01 00:00:00 +0000 UTC" lastFinishedPulling="0001-01-01 00:00:00 +0000 UTC" observedRunningTime="2026-03-05 10:11:14.123456789 +0000 UTC m=+1234.5678" watchObservedRunningTime="2026-03-05 10:11:14.2 +0000 UTC m=+1234.6"
I0305 10:11:15.000001    1432 reconciler_common.go:251] "operationExecutor.VerifyControllerAttachedVolume started for volume \"kube-api-access-x\" (UniqueName: \"kubernetes.io/projected/u-kube-api-access-x\") pod \"api-0\" (UID: \"u\") " pod="web/api-0"
I0305 10:11:15.100001    1432 operation_generator.go:721] "MountVolume.SetUp succeeded for volume \"config\" (UniqueName: \"kubernetes.io/configmap/u-config\") pod \"api-0\" (UID: \"u\") " pod="web/api-0"
I0305 10:11:15.100001    1432 reconciler_common.go:281] "operationExecutor.MountVolume started for volume" "operationExecutor.UnmountVolume started for volume" "Volume detached for volume" DevicePath \"\"" "UnmountVolume.TearDown succeeded for volume"
E0305 10:11:16.000001    1432 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"api\" with CrashLoopBackOff: \"back-off 5m0s restarting failed container=api pod=api-0_web(u)\"" pod="web/api-0" podUID="u"
I0305 10:11:17.000001    1432 prober.go:107] "Probe failed" probeType="Readiness" pod="web/api-0" podUID="u" containerName="api" probeResult="failure" output="HTTP probe failed with statuscode: 503" output="Get \"http://10.244.1.7:8080/healthz\": dial tcp 10.244.1.7:8080: connect: connection refused" context deadline exceeded (Client.Timeout exceeded while awaiting headers)
I0305 10:11:18.000001    1432 scope.go:117] "RemoveContainer" containerID="0"
E0305 10:11:18.000002    1432 remote_runtime.go:432] "ContainerStatus from runtime service failed" err="rpc error: code = NotFound desc = an error occurred when try to find container \"0\": not found" containerID="0"
I0305 10:11:18.000003    1432 pod_container_deletor.go:53] "DeleteContainer returned error" containerID={"Type":"containerd","ID":"0"} err="failed to get container status \"0\": rpc error: code = NotFound desc = an error occurred when try to find container \"0\": not found"
I0305 10:11:19.000001    1432 kubelet_volumes.go:163] "Cleaned up orphaned pod volumes dir" podUID="u" path="/var/lib/kubelet/pods/u/volumes"
I0305 10:11:19.000001    1432 kubelet_getters.go:178] "Pod status updated" pod="kube-system/kube-apiserver" status="Running"
I0305 10:11:19.000001    1432 kubelet.go:2438] "SyncLoop (PLEG): event for pod" pod="web/api-0" event={"ID":"u","Type":"ContainerStarted","Data":"0"}
I0305 10:11:19.000001    1432 generic.go:334] "Generic (PLEG): container finished" podID="u" containerID="0" exitCode=0
I0305 10:11:19.000001    1432 status_manager.go:875] "Failed to update status for pod" "Patch status for pod" "Status for pod updated successfully" statusVersion=2
I0305 10:11:19.000001    1432 csi_plugin.go:100] kubernetes.io/csi: Trying to validate a new CSI Driver with name: versions: 1.0.0
time="2026-03-05T10:11:20.123456789Z" level=info msg="StopPodSandbox for \"0\"" level=info msg="TearDown network for sandbox \"0\" successfully"
time="2026-03-05T10:11:20.223456789Z" level=info msg="StopPodSandbox for \"0\" returns successfully" level=info msg="RemovePodSandbox for \"0\"" level=info msg="Forcibly stopping sandbox \"0\""
time="2026-03-05T10:11:20.323456789Z" level=info msg="CreateContainer within sandbox \"0\" for container &ContainerMetadata{Name:api,Attempt:0,}" level=info msg="CreateContainer within sandbox returns container id"
time="2026-03-05T10:11:20.423456789Z" level=info msg="StartContainer for \"0\" returns successfully" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:api-0,Uid:u,Namespace:web,Attempt:0,} returns sandbox id \"0\""
time="2026-03-05T10:11:20.523456789Z" level=info msg="shim disconnected" id=0 namespace=k8s.io level=warning msg="cleaning up after shim disconnected" id=0 namespace=k8s.io level=info msg="cleaning up dead shim" namespace=k8s.io
time="2026-03-05T10:11:20.523456789Z" level=info msg="PullImage \"registry.example/api:1\"" msg="ImageCreate event name:\"registry.example/api:1\" labels:{key:\"io.cri-containerd.image\" value:\"managed\"}"
time="2026-03-05T10:11:20.523456789Z" level=info msg="Checking image status: registry.example/pause:3.9" id=u name=/runtime.v1.ImageService/ImageStatus
time="2026-03-05T10:11:20.523456789Z" level=info msg="loading plugin \"io.containerd.event.v1.publisher\"..." runtime=io.containerd.runc.v2 type=io.containerd.event.v1
{"ts":1753121333627.7236,"caller":"kubelet/kubelet.go:2406","msg":"SyncLoop ADD","v":2,"source":"api","pods":[{"name":"api-0","namespace":"web"}]}
Started libcontainer container 0. Started Session 74940 of user root. run-containerd-runc-k8s.io-0-runc.0.mount: Succeeded. cri-containerd-0.scope: Deactivated successfully. Consumed 1.123s CPU time.
IPv6: ADDRCONF(NETDEV_CHANGE): veth0: link becomes ready. cni0: port 1(veth0) entered forwarding state. device veth0 left promiscuous mode. audit: type=1400 audit(1.1:2): apparmor="ALLOWED" operation="open"
Accepted publickey for root from 10.0.1.2 port 1024 ssh2: ED25519 SHA256:x pam_unix(sshd:session): session opened for user root(uid=0) by (uid=0) pam_unix(cron:session): session closed for user root
`
