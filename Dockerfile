# Nobody has built this image here: porter's machines have no Docker. It installs porter with what ports for torch, Keras and ONNX need.
FROM python:3.11-slim
COPY . /src
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "/src[torch,tf,onnx,data,batch]" && rm -rf /src
RUN useradd --create-home porter
USER porter
WORKDIR /home/porter
ENTRYPOINT ["porter"]
