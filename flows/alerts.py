"""Alerts as Prefect events: automations and people act on them."""

from prefect.events import emit_event
from prefect.runtime import flow_run

from tasks.domain.progress import Progress, report
from tasks.results.alerts import Alert


def tell(alert: Alert) -> None:
    """Emit an event, of the host and about this flow run; that it can't be costs nothing."""
    related = [
        {"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.role": "run"}
    ]
    resource = {
        "prefect.resource.id": f"sglang-sweep.host.{alert.host}",
        "prefect.resource.name": alert.host,
    }
    try:
        emit_event(
            alert.event,
            resource=resource,
            related=related if flow_run.id else None,
            payload=dict(alert.payload),
        )
    except Exception as error:  # noqa: BLE001 - whatever Prefect's event client may raise
        text = f"[yellow]{alert.event} could not be emitted[/]: {type(error).__name__}"
        report(Progress("report", message=text))
